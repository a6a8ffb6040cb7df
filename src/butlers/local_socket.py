"""The Unix socket on which a running butler answers its own user: nobody else can listen there or connect to it."""

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from butlers.errors import Unavailable

_MAX_PATH_BYTES = 100
"""The kernel takes 103 bytes on macOS and 107 on Linux."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def socket_path(home: Path, folder: Path) -> Path:
    """Return the path of the socket of the butler in `folder`, in a folder of its own for the sockets of `home`."""
    name = f"{_digest(folder.resolve())}.sock"
    path = home / "sockets" / name
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        return path
    return Path(tempfile.gettempdir()) / f"butlers-sockets-{_digest(home)}" / name


@contextlib.contextmanager
def listen(home: Path, folder: Path) -> Iterator[socket.socket | None]:
    """Yield the bound socket of the butler, or None if another process of the same butler has it.

    Raises `Unavailable` if there is no place that only this user can open.
    """
    with contextlib.ExitStack() as stack:
        yield _open(socket_path(home, folder), stack)


def _open(path: Path, stack: contextlib.ExitStack) -> socket.socket | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path.parent)
        lock = stack.enter_context(path.with_suffix(".lock").open("ab"))
        return _bind(path, stack) if _take(lock.fileno()) else None
    except OSError as error:
        raise Unavailable(f"{path.parent} can't be used: {error.strerror}") from None


def find_socket(home: Path, folder: Path) -> Path | None:
    """Return the socket of the running butler, or None if it does not run.

    Raises `Unavailable` if another user could listen there.
    """
    path = socket_path(home, folder)
    try:
        _check_private(path.parent)
        return path if _is_own(path, stat.S_IFSOCK) else None
    except OSError:
        return None


def _take(lock: int) -> bool:
    """Whether this process holds the lock. The kernel releases the lock of a killed process."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bind(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    # A killed process leaves its socket behind.
    path.unlink(missing_ok=True)
    listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    listener.bind(str(path))
    stack.callback(path.unlink, missing_ok=True)
    return listener


def _check_private(folder: Path) -> None:
    """Raise `Unavailable` unless the folder belongs to this user and nobody else can enter it."""
    if not _is_own(folder, stat.S_IFDIR) or folder.lstat().st_mode & _OTHERS:
        raise Unavailable(f"other users can open {folder}", hint="Delete it, and restart the butler.")


def _is_own(path: Path, kind: int) -> bool:
    """Whether the file is of this kind, no link, and belongs to this user."""
    status = path.lstat()
    return stat.S_IFMT(status.st_mode) == kind and status.st_uid == os.geteuid()


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
