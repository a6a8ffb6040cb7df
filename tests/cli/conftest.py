"""Fixtures that run the real program on butlers of the test run."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claude import cli, owner, standing  # noqa: F401 — fixtures of the tests with the real Claude Code
from memory.scripted_model import ScriptedProgram as Thinking
from memory.scripted_model import write_scripted_butler

from .shell import MemoryShell, Shell

Result = subprocess.CompletedProcess[str]
Program = Callable[..., Result]


@pytest.fixture
def butlers(home: Path, cluster: object) -> Program:
    """Run `butlers …` in a new process."""

    def run(*arguments: object, cwd: Path | None = None, stdin: str | None = None, **variables: str) -> Result:
        return subprocess.run(
            [sys.executable, "-m", "butlers.cli", *map(str, arguments)],
            env={**os.environ, "BUTLERS_HOME": str(home), "COLUMNS": "200", **variables},
            cwd=cwd,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def place(tmp_path: Path, worker: str) -> Path:
    """Return the folder of a butler whose database is shared by the tests of this worker."""
    return write_butler(tmp_path, f"cli_{worker}")


@pytest.fixture(scope="module")
def shell(home: Path, cluster: object, tmp_path_factory: pytest.TempPathFactory, worker: str) -> Iterator[Shell]:
    """Start the program on a migrated database."""
    started = Shell(home)
    assert started("migrate", write_butler(tmp_path_factory.mktemp("shell"), f"cli_{worker}")).returncode == 0
    yield started
    started.close()


@pytest.fixture
def thinking(shell: Shell, tmp_path: Path, worker: str) -> tuple[MemoryShell, Thinking]:
    """Return a shell for a butler whose runtime is a test program, and that program."""
    folder, program = write_scripted_butler(tmp_path, f"cli_{worker}")
    return MemoryShell(shell, folder), program


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Return the folder of a butler that has no database yet."""
    return write_butler(tmp_path, f"t{uuid.uuid4().hex[:12]}")


def write_butler(parent: Path, name: str, extra: str = "") -> Path:
    """Write a butler.toml with memory, and return its folder."""
    folder = parent / name
    folder.mkdir()
    (folder / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n{extra}\n[modules.memory]\nenabled = true\n'
    )
    return folder
