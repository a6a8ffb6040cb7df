"""The folder in which hooks keep what only this user may read."""

from pathlib import Path


def hook_folder(home: Path, name: str) -> Path:
    """Return a folder for hooks below BUTLERS_HOME; it is created for this user alone."""
    folder = home / "hooks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / name).mkdir(mode=0o700, exist_ok=True)
    return folder / name
