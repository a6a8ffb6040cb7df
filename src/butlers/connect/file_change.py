"""Changes of the files of an agent, planned as a whole before any of them is written."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from tempfile import NamedTemporaryFile

from butlers.errors import ConfigurationFault, Conflict


@dataclass(frozen=True, slots=True)
class FileChange:
    """The text of a file before and after a change; None when the file does not exist."""

    path: Path
    before: str | None
    after: str | None
    root: Path
    """The folder below which empty folders are deleted with the last file in them."""

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        lines = unified_diff(old, new, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)

    def apply(self) -> None:
        """Write the file, or delete it; raise `Conflict` if somebody has changed it meanwhile."""
        if read_text(self.path) != self.before:
            raise Conflict(f"{self.path} has changed meanwhile", hint="Run the command again.")
        if self.after is not None:
            _write(self.path, self.after)
            return
        self.path.unlink(missing_ok=True)
        for folder in self.path.parents:
            if folder == self.root or not folder.is_relative_to(self.root) or any(folder.iterdir()):
                break
            folder.rmdir()


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the mode it has; through a link to the file behind it."""
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("wb", dir=target.parent, prefix=f".{target.name}.", delete=False) as draft:
        try:
            draft.write(text.encode())
            draft.flush()
            os.fchmod(draft.fileno(), _mode(target))
            Path(draft.name).rename(target)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def read_text(path: Path) -> str | None:
    """Return the text of a file, its line breaks as they are; None if it does not exist."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise ConfigurationFault(f"{path} is not UTF-8 text", hint="Fix or delete it, then connect again.") from None


@dataclass(slots=True)
class Plan:
    """Edits of files, each of the text that the edits before it have left."""

    root: Path
    read: Callable[[Path], str | None] = read_text
    texts: dict[Path, tuple[str | None, str | None]] = field(default_factory=dict)

    def text(self, path: Path) -> str | None:
        """Return the text of a file after the edits so far."""
        return self.texts[path][1] if path in self.texts else self.read(path)

    def edit(self, path: Path, change: Callable[[str | None], str | None]) -> None:
        """Change the text of a file."""
        before = self.texts[path][0] if path in self.texts else self.read(path)
        self.texts[path] = (before, change(self.text(path)))

    def changes(self) -> list[FileChange]:
        """Return the files that change."""
        return [
            FileChange(path, before, after, self.root)
            for path, (before, after) in self.texts.items()
            if before != after
        ]
