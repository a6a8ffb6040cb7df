"""Fixtures for tests with the Claude Code CLI: its installation, its home folder, its model server."""

import fcntl
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

import models

PACKAGE = "@anthropic-ai/claude-code@2.1.197"
CACHE = Path(__file__).parents[1] / ".cache" / "claude-code"
INSTALLING_SECONDS = 400
"""Timeout of tests that use the CLI: the first one may have to install it."""

Standing = Callable[[models.Script], AbstractAsyncContextManager[models.Model]]


def installed() -> Path | None:
    """The path of the CLI; None unless this version is installed completely."""
    stamp = CACHE / "installed"
    if not stamp.is_file() or stamp.read_text() != PACKAGE:
        return None
    return next(CACHE.glob("node_modules/@anthropic-ai/claude-code-*/claude"), None)


def install() -> str | None:
    """Install the CLI; returns the reason when that fails, without npm's output, which may contain addresses."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", str(CACHE)]
    try:
        result = subprocess.run(["npm", "i", *options, PACKAGE], capture_output=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "npm timed out"
    if result.returncode:
        return f"npm failed with exit code {result.returncode}"
    (CACHE / "installed").write_text(PACKAGE)
    return None


@pytest.fixture(scope="session")
def cli() -> str:
    """The path of the CLI; one of the test workers installs it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = None if installed() else install()
    path = installed()
    if path is None:
        pytest.skip(f"{PACKAGE} can't be installed: {reason or 'it has no program for this platform'}")
    return str(path)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder for the CLI, in an environment without its other variables."""
    for name in list(os.environ):
        if name.startswith(("CLAUDE", "ANTHROPIC")):
            monkeypatch.delenv(name)
    empty = tmp_path / "owner"
    empty.mkdir()
    monkeypatch.setenv("HOME", str(empty))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "any")
    monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
    return empty


@pytest.fixture
def standing(owner: Path, monkeypatch: pytest.MonkeyPatch) -> Standing:
    """Starts a model server and points the CLI to it."""
    del owner

    @asynccontextmanager
    async def stand(script: models.Script) -> AsyncIterator[models.Model]:
        async with models.messages(script) as model:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
            yield model

    return stand
