"""The program in a process of its own that runs many commands, so that they need one start."""

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4


class Shell:
    """Runs commands one after another in one process."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "BUTLERS_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *words: object, columns: int | None = 200, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; without columns its output is unlimited, as in a pipe."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([columns, stdin, *map(str, words)]) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, code, out, err)

    def close(self) -> None:
        self._process.communicate(timeout=30)


class MemoryShell:
    """Runs `butlers memory COMMAND` on a new tenant."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell, self.folder, self.tenant = shell, folder, f"t{uuid4().hex[:12]}"

    def run(
        self, name: str, *words: object, folder: Path | None = None, columns: int | None = 200
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output."""
        place = folder or self.folder
        return self.shell("memory", *name.split(), place, *words, "--tenant", self.tenant, columns=columns)

    def text(self, name: str, *words: object, folder: Path | None = None, columns: int | None = 200) -> str:
        """Return the text output of a command that succeeds."""
        result = self.run(name, *words, folder=folder, columns=columns)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    def __call__(self, name: str, *words: object, folder: Path | None = None) -> Any:
        """Return the JSON output of a command that succeeds."""
        return json.loads(self.text(name, *words, "--json", folder=folder))


def _serve() -> None:
    from butlers.cli import app

    commands = sys.stdin
    for line in commands:
        columns, stdin, *words = json.loads(line)
        os.environ.pop("COLUMNS", None)
        if columns:
            os.environ["COLUMNS"] = str(columns)
        out, err, code = io.StringIO(), io.StringIO(), 0
        sys.stdin = io.StringIO(stdin)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                app(words, prog_name="butlers")
            except SystemExit as exit_:
                code = int(exit_.code or 0)
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    _serve()
