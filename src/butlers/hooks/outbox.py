"""The outbox: events that wait until their episode is stored, in files that survive a crash."""

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from butlers.hooks.private_folder import hook_folder

_KEPT_SECONDS = 7 * 24 * 3600.0
_MAX_WAITING = 2_000
_LOCK, _ERROR = "lock", "last-error"


class Outbox:
    """The outbox of one butler: others do not wait for a butler that does not answer."""

    def __init__(self, home: Path, butler: Path) -> None:
        self.home, self.butler = home, butler.resolve()
        digest = hashlib.sha256(os.fsencode(self.butler)).hexdigest()[:16]
        self.folder = hook_folder(home, f"outbox-{digest}")

    def add(self, content: dict[str, Any]) -> Path:
        """Write an event to a file of its own, whole or not at all, and return the file."""
        name = f"{time.time_ns():020d}-{uuid4().hex}"
        draft = self.folder / f"{name}.tmp"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file)
        return draft.rename(self.folder / f"{name}.json")

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Yield whether this process is the one that delivers. The kernel releases the lock of a killed process."""
        with (self.folder / _LOCK).open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def waiting(self) -> list[Path]:
        """Return the files of the events in the order they came; those that waited too long are deleted."""
        paths = sorted(self.folder.glob("*.json"))
        overdue = [path for path in paths if _age_seconds(path) > _KEPT_SECONDS]
        overdue += [path for path in paths if path not in overdue][:-_MAX_WAITING]
        for path in overdue:
            path.unlink(missing_ok=True)
        return [path for path in paths if path not in overdue]

    @property
    def last_error(self) -> str:
        """Why the last delivery failed; empty if it did not."""
        with contextlib.suppress(OSError):
            return (self.folder / _ERROR).read_text(encoding="utf-8")
        return ""

    def note_error(self, text: str) -> None:
        """Note why the last delivery failed; an empty text if it did not."""
        with contextlib.suppress(OSError):
            (self.folder / _ERROR).write_text(text, encoding="utf-8")


def read_event(path: Path) -> dict[str, Any]:
    """Return the event in a file; it is empty if the file is gone or was damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def delete_event(path: Path) -> None:
    """Delete an event: its episode is stored."""
    path.unlink(missing_ok=True)


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
