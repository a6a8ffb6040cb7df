"""The Claude Code CLI as a runtime: one `claude -p` for each session, with the butler's tools and no others."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from butlers.contract import Usage
from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes import process
from butlers.host.runtimes.runtime import SERVER_NAME, RuntimeResult, SessionTask

# Its own memory would stand beside the butler's, and leave a folder for each session.
_QUIET = {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}
_SHUT_OUT = frozenset({401, 403})
_INPUTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class ClaudeRuntime:
    """Runs the CLI in an empty folder: a session is given what it should know, and finds nothing else."""

    name = "claude"

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def check(self) -> None:
        """Return when the CLI is there."""
        process.require_program(self._command[0])

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Run the CLI to its end."""
        with process.session_folder() as folder:
            command = [*self._command, *_arguments(task, folder)]
            # The prompt goes in by stdin: arguments are short, and other users of the machine can read them.
            ran = await process.run_program(
                command, _told(task.prompt), seconds=task.seconds, cwd=folder, folder=folder, variables=_QUIET
            )
        return _outcome(ran, self._command[0])


def _told(prompt: str) -> str:
    """The prompt; one that begins with a slash would be taken for a command of the CLI's own."""
    return f"\n{prompt}" if prompt.startswith("/") else prompt


def _arguments(task: SessionTask, folder: Path) -> list[str]:
    arguments = [
        "-p", "--output-format", "json", "--session-id", str(task.session_id), "--no-session-persistence",
        "--setting-sources", "", "--tools", "", "--strict-mcp-config",
    ]  # fmt: skip
    if task.system_prompt:
        (folder / "system.md").write_text(task.system_prompt, encoding="utf-8")
        arguments += ["--append-system-prompt-file", str(folder / "system.md")]
    if task.mcp is not None:
        (folder / "mcp.json").write_text(json.dumps(task.mcp.configuration()), encoding="utf-8")
        arguments += ["--mcp-config", str(folder / "mcp.json"), "--allowedTools", f"mcp__{SERVER_NAME}__*"]
    return arguments


def _outcome(ran: process.ProcessResult, program: str) -> RuntimeResult:
    """What the CLI's JSON says; it tells of a failure there and by its exit code."""
    try:
        said = json.loads(ran.stdout)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("result"), str):
        process.require_success(ran, program)
        raise SessionFailed(f"{program} answered something else than the JSON of a result")
    if said.get("is_error") or ran.code:
        if said.get("api_error_status") in _SHUT_OUT or "/login" in said["result"]:
            raise Unavailable(f"{program} is not logged in", hint="Log in with it, or set ANTHROPIC_API_KEY.")
        raise SessionFailed(f"{program} says: {said['result'][:300]}")
    session_id = said.get("session_id")
    return RuntimeResult(
        said["result"], session_id if isinstance(session_id, str) else None, _usage(said.get("usage"))
    )


def _usage(said: Any) -> Usage | None:
    if not isinstance(said, Mapping):
        return None
    return Usage(sum(_count(said.get(name)) for name in _INPUTS), _count(said.get("output_tokens")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
