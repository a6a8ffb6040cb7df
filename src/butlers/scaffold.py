"""The files that `butlers init` writes."""

import re
from importlib import resources
from pathlib import Path

from butlers.config_types import BUTLER_NAME
from butlers.errors import AlreadyExists, InvalidInput

_FILES = ("butler.toml", "CLAUDE.md")


def write_butler(folder: Path, name: str | None = None) -> list[Path]:
    """Write the files of a new butler and return their paths; raise `AlreadyExists` if one of them exists."""
    name = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-")
    if not BUTLER_NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name}' can't name a butler",
            hint="Use --name with a lower-case letter and then a-z, 0-9, - and _, 40 at most.",
        )
    targets = [folder / file for file in _FILES]
    try:
        if existing := [path for path in targets if path.exists()]:
            raise AlreadyExists(f"{existing[0]} already exists", hint="Choose an empty folder.")
        folder.mkdir(parents=True, exist_ok=True)
        for path in targets:
            template = (resources.files("butlers") / "templates" / path.name).read_text(encoding="utf-8")
            path.write_text(template.replace("{{name}}", name), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{error.filename} can't be written: {error.strerror}", hint="Name a folder that you may write to."
        ) from error
    return targets
