"""PgBouncer in front of an external server, in session or transaction mode."""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from database.butler_processes import wait_until
from servers.conftest import PGBOUNCER
from servers.external_servers import PASSWORD, SUPERUSER, ExternalServer, free_port, give_to_server, new_folder
from servers.site import ExternalSite


@dataclass(frozen=True)
class Pooler:
    """A running PgBouncer."""

    server: ExternalServer
    port: int
    mode: str

    def in_front_of(self, site: ExternalSite) -> ExternalSite:
        """Return the site with a URL that goes through the pooler."""
        return site.with_port(self.port)


@contextlib.contextmanager
def pgbouncer(server: ExternalServer, mode: str, **settings: object) -> Iterator[Pooler]:
    """Start a pooler with the settings of its package, but for the mode and these; end it afterwards."""
    assert PGBOUNCER
    folder = new_folder()
    port = free_port()
    lines = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_user": "postgres",
        "auth_query": "select usename, passwd from pg_shadow where usename = $1",
        "auth_file": folder / "users",
        "pool_mode": mode,
        "logfile": folder / "log",
        **settings,
    }
    text = f"[databases]\n* = host={server.sockets} port={server.port}\n[pgbouncer]\n"
    (folder / "users").write_text(f'"{SUPERUSER}" "{PASSWORD}"\n')
    (folder / "pgbouncer.ini").write_text(text + "".join(f"{name} = {value}\n" for name, value in lines.items()))
    for name in ("users", "pgbouncer.ini"):
        give_to_server(folder / name)
    as_other: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(
        [PGBOUNCER, "-q", folder / "pgbouncer.ini"], stderr=subprocess.DEVNULL, cwd="/", **as_other
    )
    try:
        wait_until(lambda: _listens(port), "the pooler to listen", 10)
        yield Pooler(server, port, mode)
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
