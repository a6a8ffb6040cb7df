"""Runtime for the Claude Code CLI: one `claude -p` per session, with only the butler's tools."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from butlers.contract import Usage
from butlers.errors import SessionFailed, Unavailable
from butlers.host.runtimes import process
from butlers.host.runtimes.runtime import SERVER_NAME, RuntimeResult, SessionTask, token_count

# The CLI's own memory would compete with the butler's, and leave a folder for each session.
_ENVIRONMENT = {"CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1"}
_UNAUTHORIZED_STATUSES = frozenset({401, 403})
_INPUT_TOKEN_FIELDS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class ClaudeRuntime:
    """Runs the CLI in an empty folder, so that a session sees only what it is given."""

    name = "claude"

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command

    def check(self) -> None:
        """Return if the CLI is installed, else raise `Unavailable`."""
        process.require_program(self._command[0])

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Run the CLI and return its result."""
        with process.session_folder() as folder:
            command = [*self._command, *_arguments(task, folder)]
            # The prompt goes to stdin: arguments have a length limit, and other users can read them.
            # The CLI would read a leading slash as a command.
            stdin = f"\n{task.prompt}" if task.prompt.startswith("/") else task.prompt
            result = await process.run_program(
                command,
                stdin,
                session=task.session_id,
                seconds=task.seconds,
                cwd=folder,
                folder=folder,
                variables=_ENVIRONMENT,
            )
        return _parse_result(result, self._command[0])


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


def _parse_result(result: process.ProcessResult, program: str) -> RuntimeResult:
    """Return the result in the CLI's JSON; raise if the JSON or the exit code reports an error."""
    try:
        payload = json.loads(result.stdout)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict) or not isinstance(payload.get("result"), str):
        process.require_success(result, program)
        raise SessionFailed(f"{program} did not answer with a result in JSON")
    if payload.get("is_error") or result.code:
        if payload.get("api_error_status") in _UNAUTHORIZED_STATUSES or "/login" in payload["result"]:
            raise Unavailable(f"{program} is not logged in", hint="Log in, or set ANTHROPIC_API_KEY.")
        raise SessionFailed(f"{program} failed: {payload['result'][:300]}")
    session_id = payload.get("session_id") if isinstance(payload.get("session_id"), str) else None
    return RuntimeResult(payload["result"], session_id, _usage(payload.get("usage")))


def _usage(payload: Any) -> Usage | None:
    if not isinstance(payload, Mapping):
        return None
    input_tokens = sum(token_count(payload.get(name)) for name in _INPUT_TOKEN_FIELDS)
    return Usage(input_tokens, token_count(payload.get("output_tokens")))
