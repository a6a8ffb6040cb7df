"""What `butlers init` writes: a butler that works at once."""

import re
from importlib import resources
from pathlib import Path

from butlers.errors import AlreadyExists, InvalidInput

_FILES = ("butler.toml", "CLAUDE.md")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def write_butler(folder: Path, name: str | None = None) -> list[Path]:
    """The files of a new butler; nothing that is already there is touched."""
    name = name or re.sub(r"[^a-z0-9_-]+", "-", folder.resolve().name.lower()).strip("-")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name}' can't name a butler",
            hint="Use --name with a letter and then letters, digits, - and _, 40 at most.",
        )
    targets = [folder / file for file in _FILES]
    if there := [path for path in targets if path.exists()]:
        raise AlreadyExists(f"{there[0]} is already there", hint="Choose an empty folder.")
    folder.mkdir(parents=True, exist_ok=True)
    for path in targets:
        template = (resources.files("butlers") / "templates" / path.name).read_text(encoding="utf-8")
        path.write_text(template.replace("{{name}}", name), encoding="utf-8")
    return targets
