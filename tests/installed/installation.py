"""Butlers as a user has it who installed the wheel."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmcp import Client

from butlers import embedded_server

Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Installation:
    """The program, and the user who may not change it."""

    program: Path
    user: int | None

    @contextmanager
    def owner(self, **variables: str) -> Iterator["Owner"]:
        """A user with an empty home folder and nothing of the environment but the network's settings."""
        home = Path(tempfile.mkdtemp(prefix="butlers-owner-"))
        if self.user is not None:
            os.chown(home, self.user, self.user)
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        kept |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        path = f"{self.program.parent}:/usr/bin:/bin"
        try:
            yield Owner(self, home, {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", **variables})
        finally:
            embedded_server._stop(home / ".local/share/butlers/postgres/data")
            shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class Owner:
    """A user of an installation."""

    installation: Installation
    home: Path
    variables: dict[str, str]

    @property
    def models(self) -> Path:
        """The folder for models in BUTLERS_HOME."""
        return self.home / ".local/share/butlers/models"

    def run(self, *words: object, program: str = "butlers", **variables: str) -> Result:
        """Run `butlers …`, or another program of the environment, in the home folder."""
        return subprocess.run(
            [str(self.installation.program.with_name(program)), *map(str, words)],
            **self._place(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def json(self, *words: object, **variables: str) -> Any:
        """The answer of a command that succeeds."""
        done = self.run(*words, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[Client[Any]]:
        """Run a butler over HTTP, and connect a client to it."""
        process = await asyncio.create_subprocess_exec(
            str(self.installation.program),
            "run",
            str(folder),
            "--port",
            "0",
            **self._place({}),
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr
        try:
            async with asyncio.timeout(120):
                async for line in process.stderr:
                    if line.startswith(b"ready: "):
                        break
            async with Client(line.decode().split()[1]) as client:
                yield client
        finally:
            if process.returncode is None:
                process.terminate()
            await process.communicate()

    def _place(self, variables: dict[str, str]) -> dict[str, Any]:
        user = self.installation.user
        groups: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        return {"cwd": self.home, "env": {**self.variables, **variables}, **groups}


async def call_when_fetched(client: Client[Any], tool: str, **arguments: Any) -> Any:
    """Call a tool, and again while it says that the model is still being fetched."""
    async with asyncio.timeout(240):
        while True:
            answer = await client.call_tool(tool, arguments, raise_on_error=False)
            if not answer.is_error:
                content = answer.structured_content or {}
                return content.get("result", content)
            assert "the embedding model is being fetched" in str(answer.content)
            await asyncio.sleep(0.5)
