"""The program kept running, so that many commands need one start: words in, what it wrote and its exit code out."""

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
    """Runs one command after the other in a process of its own."""

    def __init__(self, home: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "BUTLERS_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: object, columns: int = 200, told: str = "") -> subprocess.CompletedProcess[str]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([columns, told, *map(str, words)]) + "\n")
        self._process.stdin.flush()
        code, out, err = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(words, code, out, err)

    def close(self) -> None:
        self._process.communicate(timeout=30)


class Person:
    """Somebody who runs `butlers memory COMMAND` on a tenant of their own."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell, self.folder, self.tenant = shell, folder, f"t{uuid4().hex[:12]}"

    def run(self, name: str, *words: object) -> subprocess.CompletedProcess[str]:
        """The command as it ended."""
        return self.shell("memory", *name.split(), self.folder, *words, "--tenant", self.tenant)

    def text(self, name: str, *words: object) -> str:
        """What it shows people."""
        done = self.run(name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __call__(self, name: str, *words: object) -> Any:
        """What it tells programs."""
        return json.loads(self.text(name, *words, "--json"))


def _serve() -> None:
    from butlers.cli import app

    commands = sys.stdin
    for line in commands:
        columns, told, *words = json.loads(line)
        os.environ["COLUMNS"] = str(columns)
        out, err, code = io.StringIO(), io.StringIO(), 0
        sys.stdin = io.StringIO(told)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                app(words, prog_name="butlers")
            except SystemExit as ended:
                code = int(ended.code or 0)
        print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)


if __name__ == "__main__":
    _serve()
