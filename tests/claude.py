"""The real Claude Code CLI, installed once, and where it looks for its model."""

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
"""The first use of all may have to install it."""

Standing = Callable[[models.Script], AbstractAsyncContextManager[models.Model]]


def installed() -> Path | None:
    """The CLI, if an installation of that version came to its end."""
    stamp = CACHE / "installed"
    if not stamp.is_file() or stamp.read_text() != PACKAGE:
        return None
    return next(CACHE.glob("node_modules/@anthropic-ai/claude-code-*/claude"), None)


def install() -> str | None:
    """Install it, and say why when that can't be done; what npm says may name addresses, and is not repeated."""
    if shutil.which("npm") is None:
        return "npm is not here"
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", str(CACHE)]
    try:
        done = subprocess.run(["npm", "i", *options, PACKAGE], capture_output=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        return "npm took too long"
    if done.returncode:
        return f"npm ended with exit code {done.returncode}"
    (CACHE / "installed").write_text(PACKAGE)
    return None


@pytest.fixture(scope="session")
def cli() -> str:
    """The path of the CLI; several test workers install it once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        reason = None if installed() else install()
    found = installed()
    if found is None:
        pytest.skip(f"{PACKAGE} can't be installed: {reason or 'it has no program for this platform'}")
    return str(found)


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty home of whoever runs the CLI, and nothing else in the environment that it would heed."""
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
    """Puts a stand-in where the CLI looks for its model."""
    del owner

    @asynccontextmanager
    async def stand(script: models.Script) -> AsyncIterator[models.Model]:
        async with models.messages(script) as model:
            monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
            yield model

    return stand
