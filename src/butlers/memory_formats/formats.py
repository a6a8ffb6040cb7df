"""The table of the formats that can be imported, in order of recognition."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from butlers.errors import InvalidInput
from butlers.memory_formats import (
    basic_memory,
    chatgpt,
    claude_ai,
    claude_code,
    graphiti,
    letta,
    lines,
    mcp_memory,
    mcp_memory_service,
    mem0,
)
from butlers.memory_formats.records import ForeignRecord
from butlers.memory_formats.source import Source, UnreadableSource

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class MemoryFormat:
    """How another system writes its memories."""

    name: str
    description: str
    recognise: Callable[[Source], bool]
    read: Callable[[Source], Iterator[ForeignRecord]]


FORMATS = (
    MemoryFormat(
        "mcp-memory",
        "the MCP memory server's memory.jsonl",
        mcp_memory.is_mcp_memory,
        mcp_memory.read_mcp_memory,
    ),
    MemoryFormat(
        "claude-code",
        "Claude Code's memory folders below ~/.claude/projects",
        claude_code.is_claude_code,
        claude_code.read_claude_code,
    ),
    MemoryFormat(
        "claude-code-sessions",
        "Claude Code's transcripts below ~/.claude/projects",
        claude_code.is_claude_code_sessions,
        claude_code.read_claude_code_sessions,
    ),
    MemoryFormat("mem0", "the answer of mem0's get_all, or its history.db", mem0.is_mem0, mem0.read_mem0),
    MemoryFormat("claude", "the export of Claude.ai", claude_ai.is_claude_ai, claude_ai.read_claude_ai),
    MemoryFormat("chatgpt", "the export of ChatGPT", chatgpt.is_chatgpt, chatgpt.read_chatgpt),
    MemoryFormat(
        "basic-memory",
        "a folder of basic-memory",
        basic_memory.is_basic_memory,
        basic_memory.read_basic_memory,
    ),
    MemoryFormat(
        "mcp-memory-service",
        "the export or database of mcp-memory-service",
        mcp_memory_service.is_mcp_memory_service,
        mcp_memory_service.read_mcp_memory_service,
    ),
    MemoryFormat("letta", "an agent file of Letta", letta.is_letta, letta.read_letta),
    MemoryFormat("graphiti", "dumped nodes and edges of Graphiti", graphiti.is_graphiti, graphiti.read_graphiti),
    MemoryFormat("lines", "a text file with a memory on each line", lines.is_lines, lines.read_lines),
)
FORMAT_NAMES = tuple(each.name for each in FORMATS)


def find_format(name: str, source: Source) -> MemoryFormat:
    """Return the format of that name, or the recognised one for `auto`; raises `InvalidInput`."""
    if name == AUTO:
        return _recognise(source)
    for each in FORMATS:
        if each.name == name:
            return each
    raise InvalidInput(f"there is no format {name[:50]}", hint=f"Choose one of {', '.join(FORMAT_NAMES)}.")


def read_records(path: Path, name: str = AUTO) -> Iterator[ForeignRecord]:
    """Yield the records of a file or folder; raises `InvalidInput` if it can't be read or its format is not known."""
    with Source(path) as source:
        yield from find_format(name, source).read(source)


def _recognise(source: Source) -> MemoryFormat:
    if source.head.startswith(b'{"format":"butlers-memory"') or source.head.startswith(
        b'{"format": "butlers-memory"'
    ):
        raise UnreadableSource(f"{source.path} is an export of a butler", hint="Run `butlers memory import` for it.")
    for each in FORMATS:
        if each.recognise(source):
            return each
    raise UnreadableSource(
        f"the format of {source.path} is not recognised",
        hint=f"Nothing was imported. Name it with --from: {', '.join(FORMAT_NAMES)}.",
    )
