"""The real program, run as people run it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claude import cli, owner, standing  # noqa: F401 — the fixtures of those who use the real CLI
from memory.thinking import Program as Thinking
from memory.thinking import write_thinking_butler

from .shell import Person, Shell

Result = subprocess.CompletedProcess[str]
Program = Callable[..., Result]


@pytest.fixture
def butlers(home: Path, cluster: object) -> Program:
    """Runs `butlers …` to its end."""

    def run(*arguments: object, cwd: Path | None = None, told: str | None = None, **variables: str) -> Result:
        return subprocess.run(
            [sys.executable, "-m", "butlers.cli", *map(str, arguments)],
            env={**os.environ, "BUTLERS_HOME": str(home), "COLUMNS": "200", **variables},
            cwd=cwd,
            input=told,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def place(tmp_path: Path, worker: str) -> Path:
    """The folder of a butler whose database the tests of this worker share."""
    return written(tmp_path, f"cli_{worker}")


@pytest.fixture(scope="module")
def shell(home: Path, cluster: object, tmp_path_factory: pytest.TempPathFactory, worker: str) -> Iterator[Shell]:
    """The program, on a database that is there already."""
    started = Shell(home)
    assert started("migrate", written(tmp_path_factory.mktemp("shell"), f"cli_{worker}")).returncode == 0
    yield started
    started.close()


@pytest.fixture
def at(shell: Shell, tmp_path: Path, worker: str) -> tuple[Person, Thinking]:
    """Somebody whose butler thinks by a program of ours, and the program's own view."""
    folder, program = write_thinking_butler(tmp_path, f"cli_{worker}")
    return Person(shell, folder), program


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """The folder of a butler that has no database yet."""
    return written(tmp_path, f"t{uuid.uuid4().hex[:12]}")


def written(parent: Path, name: str, extra: str = "") -> Path:
    folder = parent / name
    folder.mkdir()
    (folder / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n{extra}\n[modules.memory]\nenabled = true\n'
    )
    return folder
