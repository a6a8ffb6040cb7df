"""Runtime for any program: the prompt on stdin, the answer on stdout."""

import json
from collections.abc import Sequence
from pathlib import Path

from butlers.host.runtimes import process
from butlers.host.runtimes.runtime import RuntimeResult, SessionTask


class CommandRuntime:
    """Runs the configured program once per session, in the butler's folder.

    The system prompt stands before the prompt. BUTLERS_MCP_CONFIG names a file with the address of the butler's
    tools, and BUTLERS_SESSION_ID is the session's id.
    """

    name = "command"

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder

    def check(self) -> None:
        """Return if the program is installed, else raise `Unavailable`."""
        process.require_program(self._command[0])

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Run the program and return its stdout."""
        stdin = f"{task.system_prompt}\n\n{task.prompt}" if task.system_prompt else task.prompt
        variables = {}
        with process.session_folder() as folder:
            if task.mcp is not None:
                config = folder / "mcp.json"
                config.write_text(json.dumps(task.mcp.configuration()), encoding="utf-8")
                variables["BUTLERS_MCP_CONFIG"] = str(config)
            result = await process.run_program(
                self._command,
                stdin,
                session=task.session_id,
                seconds=task.seconds,
                cwd=self._folder,
                folder=folder,
                variables=variables,
            )
        return RuntimeResult(process.require_success(result, self._command[0]))
