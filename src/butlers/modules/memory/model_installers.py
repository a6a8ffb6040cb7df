"""The installers of this machine that can fetch a Python package: pip and uv, wherever they are."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.2
_TIMEOUT_SECONDS = 1800.0
_USER_PROGRAMS = "~/.local/bin"
"""An agent that is started from a desktop may not have it in its PATH."""
_COMMON = ("install", "--no-deps", "--only-binary", ":all:", "--require-hashes")
_PIP = (*_COMMON, "--disable-pip-version-check", "--no-input", "--no-compile", "--retries", "2")
_UV = ("pip", *_COMMON, "--no-cache")
# A package goes to the folder that is named, whatever the user's settings for other packages are.
_NEUTRAL_VARIABLES = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
_DROPPED_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN")

Report = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that installs packages from the index that its user has configured."""

    name: str
    command: tuple[str, ...]

    def fetch(self, requirement: str, staging: Path, report: Report) -> str | None:
        """Install the requirement in `staging / "target"`; return the reason if that fails.

        The reason has nothing of the installer's output, which may contain addresses and passwords. Everything that
        is downloaded passes through `staging`, so the bytes in it are the progress.
        """
        staging.mkdir(parents=True)
        (staging / "requirement.txt").write_text(f"{requirement}\n", encoding="utf-8")
        arguments = ("--target", str(staging / "target"), "--requirement", str(staging / "requirement.txt"))
        with (staging / "output.txt").open("w+b") as output:
            process = subprocess.Popen(  # noqa: S603 — an installer of this machine
                [*self.command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(staging),
            )
            code = _wait(process, staging, report)
            output.seek(0)
            is_other_file = b"hash" in output.read().lower()
        if code == 0:
            return None
        return (
            f"{self.name} got another file than the expected one" if code and is_other_file else _failure(self, code)
        )


def find_installers() -> Iterator[Installer]:
    """Yield the installers of this machine: the one that installed this program most likely comes first."""
    if importlib.util.find_spec("pip"):
        yield Installer("pip", (sys.executable, "-m", "pip", *_PIP))
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), os.path.expanduser(_USER_PROGRAMS)))  # noqa: PTH111
    if uv := os.environ.get("UV") or shutil.which("uv", path=search):
        yield Installer("uv", (uv, *_UV, "--python", sys.executable))
    if importlib.util.find_spec("pip"):
        return
    if pip := shutil.which("pip3", path=search) or shutil.which("pip", path=search):
        yield Installer("pip", (pip, "--python", sys.executable, *_PIP))
    if wheel := _bundled_pip():
        yield Installer("the pip of Python itself", (sys.executable, str(wheel / "pip"), *_PIP))


def _bundled_pip() -> Path | None:
    """Return the wheel of pip that comes with Python, which runs without being installed; None if there is none."""
    package = importlib.util.find_spec("ensurepip")
    beside = [Path(package.origin).parent / "_bundled"] if package and package.origin else []
    # Some distributions keep it elsewhere.
    shared = [Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/usr/share/python-wheels")]
    return next((wheel for folder in (*beside, *shared) for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _environment(staging: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED_VARIABLES}
    return {**kept, **_NEUTRAL_VARIABLES, "TMPDIR": str(staging)}


def _wait(process: "subprocess.Popen[bytes]", staging: Path, report: Report) -> int | None:
    """Return the exit code, or None after the time limit; report the bytes in the folder meanwhile."""
    waited = 0.0
    try:
        while waited < _TIMEOUT_SECONDS:
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                waited += _POLL_SECONDS
                report(size_of(staging))
        return None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def size_of(folder: Path) -> int:
    """Return the bytes of the files in a folder that may change at the same time."""
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            try:
                total += os.lstat(os.path.join(parent, file)).st_size  # noqa: PTH118 — called often
            except OSError:
                continue
    return total


def _failure(installer: Installer, code: int | None) -> str:
    if code is None:
        return f"{installer.name} took longer than {_TIMEOUT_SECONDS / 60:g} minutes"
    return f"{installer.name} failed with exit code {code}"
