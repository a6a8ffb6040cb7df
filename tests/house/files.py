"""Text files of the repository, for the house tests."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "butlers"
_IGNORED_FOLDERS = {".git", ".venv", ".cache", "__pycache__", "node_modules", "dist", "build"}


@cache
def texts() -> dict[Path, str]:
    """The content of every text file of the repository by its path from the root."""
    paths = _tracked() or (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    contents = {}
    for path in paths:
        if _IGNORED_FOLDERS.isdisjoint(path.parts) and (ROOT / path).is_file():
            raw = (ROOT / path).read_bytes()
            if b"\0" not in raw:
                contents[path] = raw.decode("utf-8", errors="replace")
    return contents


def _tracked() -> list[Path]:
    """The files that git tracks or would add; empty without git."""
    try:
        result = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [Path(name) for name in result.stdout.split("\0") if name]
