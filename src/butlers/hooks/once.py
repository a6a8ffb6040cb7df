"""Guards against telling or keeping a session twice: an editor may also run the hooks of another agent."""

import contextlib
import fcntl
import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from butlers.hooks.private_folder import hook_folder

_SAME_START_SECONDS = 20.0
"""Longer than one hook may take: an agent that runs two one after the other still counts as one start."""
_KEPT_SECONDS = 24 * 3600.0
_MAX_CLAIMS = 500


def claim_start(home: Path, *names: str) -> bool:
    """Return whether this is the first hook that starts the session; a folder that can't be used is no obstacle."""
    try:
        with _claim(home, "starts", names) as file:
            is_first = time.time() - _parse_time(file.read(40)) > _SAME_START_SECONDS
            if is_first:
                file.truncate(0)
                file.write(str(time.time()))
            return is_first
    except OSError:
        return True


def claim_keeping(home: Path, agent: str, *names: str) -> bool:
    """Return whether the hooks of this agent keep the session: those of the agent that came first, for a day."""
    try:
        with _claim(home, "keepers", names) as file:
            keeper = file.read(40)
            if not keeper:
                file.write(agent)
            return keeper in {"", agent}
    except OSError:
        return True


@contextlib.contextmanager
def _claim(home: Path, kind: str, names: Sequence[str]) -> Iterator[TextIO]:
    """Yield the locked file of what the names stand for."""
    key = hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:32]
    folder = hook_folder(home, kind)
    _delete_old(folder)
    with (folder / key).open("a+") as file:
        # Held for a few lines only.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _parse_time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _delete_old(folder: Path) -> None:
    """Delete the claims of a day ago, once there are many."""
    claims = list(folder.iterdir())
    if len(claims) > _MAX_CLAIMS:
        for claim in claims:
            with contextlib.suppress(OSError):
                if time.time() - claim.stat().st_mtime > _KEPT_SECONDS:
                    claim.unlink()
