"""Installation of the real agents for `make test-agents`: pinned versions from npm, in a folder that git ignores."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".cache" / "agents"
_MODULES = FOLDER / "node_modules"
_SYSTEM = {"Linux": "linux", "Darwin": "darwin"}.get(platform.system(), "")
_MACHINE = {"x86_64": "x64", "amd64": "x64", "arm64": "arm64", "aarch64": "arm64"}.get(platform.machine().lower(), "")
_PLATFORM = f"{_SYSTEM}-{_MACHINE}"
PACKAGES = (
    f"node-{_PLATFORM}@24",
    "@anthropic-ai/claude-code@2.1.197",
    "@google/gemini-cli@0.61.0",
    "@openai/codex@0.166.0",
    "opencode-ai@1.18.33",
)
# The programs themselves: the wrappers of some packages need scripts that npm is told not to run.
PROGRAMS = {
    "claude": _MODULES / "@anthropic-ai" / f"claude-code-{_PLATFORM}" / "claude",
    "codex": _MODULES / ".bin" / "codex",
    "gemini": _MODULES / ".bin" / "gemini",
    "node": _MODULES / f"node-{_PLATFORM}" / "bin" / "node",
    "opencode": _MODULES / f"opencode-{_PLATFORM}" / "bin" / "opencode",
}
BIN = FOLDER / "bin"
_STAMP = FOLDER / "installed"
_TIMEOUT_SECONDS = 600


def is_installed() -> bool:
    """Whether these versions are installed completely."""
    return _STAMP.is_file() and _STAMP.read_text() == "\n".join(PACKAGES)


def install() -> str | None:
    """Install the agents; return the reason if that fails, without npm's output, which may contain addresses."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--fetch-retries=2"]
    command = ["npm", "install", *options, "--prefix", str(FOLDER), *PACKAGES]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"npm took longer than {_TIMEOUT_SECONDS} s"
    if result.returncode:
        return f"npm failed with exit code {result.returncode}"
    if missing := [name for name, program in PROGRAMS.items() if not program.exists()]:
        return f"npm has no {' and no '.join(missing)} for {_PLATFORM}"
    _link_programs()
    _STAMP.write_text("\n".join(PACKAGES))
    return None


def _link_programs() -> None:
    BIN.mkdir(exist_ok=True)
    for name, program in PROGRAMS.items():
        link = BIN / name
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(program, BIN))


if __name__ == "__main__":
    if not is_installed():
        print(f"installing {', '.join(PACKAGES)}")
        if reason := install():
            sys.exit(f"the agents can't be installed: {reason}")
