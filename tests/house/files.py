"""The files of the house, as a clone has them."""

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "butlers"
_ELSEWHERE = {".git", ".venv", ".cache", "__pycache__", "node_modules", "dist", "build"}


@cache
def texts() -> dict[Path, str]:
    """Every text file that belongs to the repository, by its path from the root."""
    paths = _tracked() or (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    found = {}
    for path in paths:
        if _ELSEWHERE.isdisjoint(path.parts) and (ROOT / path).is_file():
            raw = (ROOT / path).read_bytes()
            if b"\0" not in raw:
                found[path] = raw.decode("utf-8", errors="replace")
    return found


def _tracked() -> list[Path]:
    """What git would put in a commit; nothing where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [Path(name) for name in listed.stdout.split("\0") if name]
