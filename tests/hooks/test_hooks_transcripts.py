"""Transcripts of each agent: what was asked and done, whatever else the file contains."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butlers.agents import AGENTS
from butlers.transcripts import FORMATS, read_entries, read_transcript
from butlers.transcripts.reading import MAX_TRANSCRIPT_BYTES

from .transcript_samples import ANSWER, BLOCK, PROMPTS, SAMPLES, SHOWS_CONTEXT, TOOLS

each_format = pytest.mark.parametrize("name", SAMPLES)


def write(path, entries, *more):
    path.write_text("\n".join([*(json.dumps(entry, ensure_ascii=False) for entry in entries), *more]))
    return path


def test_every_format_has_a_sample_and_every_agent_with_hooks_a_format():
    assert set(SAMPLES) == set(FORMATS)
    assert {agent.transcript for agent in AGENTS.values() if agent.hooks} == set(FORMATS)


@each_format
def test_a_session_is_its_prompts_its_tools_and_its_last_answer(tmp_path, name):
    path = write(tmp_path / "talk.jsonl", SAMPLES[name], '{"half": "a li')
    transcript = read_transcript(path, FORMATS[name])
    assert [prompt.strip() for prompt in transcript.prompts] == PROMPTS
    assert transcript.tools == TOOLS
    assert transcript.answer == ANSWER
    assert [turn.tools for turn in transcript.turns if turn.prompt] == [TOOLS, {}]
    assert [block.strip() for block in transcript.injected] == ([BLOCK] if name in SHOWS_CONTEXT else [])


@each_format
def test_the_part_of_a_transcript_up_to_a_byte_is_that_of_then(tmp_path, name):
    path = write(tmp_path / "talk.jsonl", SAMPLES[name])
    lines = path.read_bytes().split(b"\n")
    second = next(index for index, line in enumerate(lines) if b"milk" in line)
    transcript = read_transcript(path, FORMATS[name], len(b"\n".join(lines[:second])))
    assert transcript.prompts[0].strip() == PROMPTS[0]
    assert PROMPTS[1] not in transcript.prompts
    assert transcript.answer != ANSWER


RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "{result}"}
CALLS = {
    "claude": [
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "c", "name": "{tool}"}]}},
        {
            "type": "user",
            "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "{result}"}]},
        },
    ],
    "codex": [
        {"type": "response_item", "payload": {"type": "function_call", "name": "{tool}", "call_id": "c"}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "{result}"}},
    ],
    "copilot": [
        {"type": "tool.execution_start", "data": {"toolCallId": "c", "toolName": "{tool}"}},
        {"type": "tool.execution_complete", "data": {"toolCallId": "c", "result": {"content": "{result}"}}},
    ],
    "cursor": [
        {"role": "assistant", "message": {"content": [{"type": "tool_use", "id": "c", "name": "{tool}"}]}},
        {
            "role": "user",
            "message": {"content": [{"type": "tool_result", "tool_use_id": "c", "content": "{result}"}]},
        },
    ],
    "gemini": [
        {
            "type": "gemini",
            "toolCalls": [{"id": "c", "name": "{tool}", "result": [{"response": {"output": "{result}"}}]}],
        }
    ],
    "opencode": [
        {
            "info": {"role": "assistant"},
            "parts": [{"type": "tool", "tool": "{tool}", "callID": "c", "state": {"output": "{result}"}}],
        }
    ],
}


@each_format
@pytest.mark.parametrize(("tool", "is_injected"), [("mcp__home__memory_context", True), ("WebFetch", False)])
def test_row_50_only_the_sessions_own_call_of_memory_context_counts_as_remembered(name, tool, is_injected):
    text = json.dumps(CALLS[name]).replace("{tool}", tool).replace('"{result}"', json.dumps(BLOCK))
    transcript = read_entries(json.loads(text), FORMATS[name])
    assert transcript.injected == ([BLOCK] if is_injected else [])


@each_format
def test_row_50_a_prompt_that_looks_like_memories_hides_nothing(name):
    text = json.dumps(SAMPLES[name]).replace(json.dumps(PROMPTS[1])[1:-1], json.dumps(f"Read: {BLOCK}")[1:-1])
    transcript = read_entries(json.loads(text), FORMATS[name])
    assert f"Read: {BLOCK}" in transcript.prompts[-1]
    assert len(transcript.injected) == (name in SHOWS_CONTEXT)


_KEYS = [
    *("type", "role", "message", "content", "parts", "text", "info", "payload", "data", "name", "id", "call_id"),
    *("callID", "state", "output", "result", "$set", "messages", "$rewindTo", "toolCalls", "attachment", "isMeta"),
    *("displayContent", "toolName", "toolCallId", "tool", "tool_use_id"),
]
_WORDS = [
    *("user", "assistant", "developer", "message", "text", "tool", "tool_use", "tool_result", "function_call"),
    *("response_item", "gemini", "user.message", "assistant.message", "hook_additional_context"),
    *("<user_query>", "</user_query>", "<hook_context>", "# Memory Context"),
]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(_WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=20,
)


@each_format
@settings(max_examples=60, deadline=None)
@given(entries=st.lists(values, max_size=5))
def test_an_entry_of_any_shape_is_read_or_left_out(name, entries):
    transcript = read_entries(entries, FORMATS[name])
    assert all(isinstance(prompt, str) for prompt in transcript.prompts)


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
@each_format
def test_row_50_a_line_nested_too_deeply_costs_the_transcript_nothing_else(tmp_path, name, depth):
    nested = '{"type": "user", "x": ' + "[" * depth + "]" * depth + "}"
    path = tmp_path / "talk.jsonl"
    path.write_text("\n".join([nested, *(json.dumps(entry) for entry in SAMPLES[name])]))
    assert [prompt.strip() for prompt in read_transcript(path, FORMATS[name]).prompts] == PROMPTS


@each_format
def test_of_a_very_long_transcript_the_end_counts(tmp_path, name):
    path = tmp_path / "talk.jsonl"
    long = json.dumps({"type": "user", "role": "user", "x": "y" * MAX_TRANSCRIPT_BYTES})
    path.write_text("\n".join([long, *(json.dumps(entry) for entry in SAMPLES[name])]))
    assert [prompt.strip() for prompt in read_transcript(path, FORMATS[name]).prompts] == PROMPTS


def test_an_older_transcript_of_gemini_is_one_document(tmp_path):
    entries = [entry for entry in SAMPLES["gemini"] if "$set" not in entry and entry.get("id") not in {"3", "4"}]
    (tmp_path / "session.json").write_text(json.dumps({"sessionId": "1", "messages": entries}, indent=2))
    transcript = read_transcript(tmp_path / "session.json", FORMATS["gemini"])
    assert (transcript.prompts, transcript.answer) == (PROMPTS, ANSWER)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"null\n[]\n7\n", b'{"messages": 7}'])
def test_a_file_without_entries_is_an_empty_transcript(tmp_path, content):
    (tmp_path / "talk").write_bytes(content)
    assert read_transcript(tmp_path / "talk", FORMATS["claude"]).turns == []


@pytest.mark.parametrize("path", ["/no/such/file", "", "/", "/dev/zero", "a\0b"])
def test_what_is_no_file_is_an_empty_transcript(path, tmp_path):
    assert read_transcript(Path(path), FORMATS["claude"]).turns == []
    os.mkfifo(tmp_path / "pipe")
    assert read_transcript(tmp_path / "pipe", FORMATS["claude"]).turns == []


def test_a_long_prompt_full_of_tags_is_read_quickly():
    for tag in ("<user_query>", "<hook_context>", "</user_query>", "<hook_context></hook_context>"):
        text = tag * 200_000
        for name in FORMATS:
            list(FORMATS[name].read_prompt(text))
