"""Any program as a runtime: the prompt on its stdin, its stdout the answer."""

import json
from collections.abc import Sequence
from pathlib import Path

from butlers.host.runtimes import process
from butlers.host.runtimes.runtime import RuntimeResult, SessionTask


class CommandRuntime:
    """Runs the configured program once for each session, in the butler's folder.

    Of the system prompt it is told in front of the prompt; where it reaches the butler's tools stands in a file that
    the variable BUTLERS_MCP_CONFIG names, and BUTLERS_SESSION_ID is the session's id.
    """

    name = "command"

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder

    def check(self) -> None:
        """Return when the program is there."""
        process.require_program(self._command[0])

    async def run(self, task: SessionTask) -> RuntimeResult:
        """Run the program to its end."""
        told = f"{task.system_prompt}\n\n{task.prompt}" if task.system_prompt else task.prompt
        variables = {"BUTLERS_SESSION_ID": str(task.session_id)}
        with process.session_folder() as folder:
            if task.mcp is not None:
                config = folder / "mcp.json"
                config.write_text(json.dumps(task.mcp.configuration()), encoding="utf-8")
                variables["BUTLERS_MCP_CONFIG"] = str(config)
            ran = await process.run_program(
                self._command, told, seconds=task.seconds, cwd=self._folder, folder=folder, variables=variables
            )
        return RuntimeResult(process.require_success(ran, self._command[0]))
