"""The address of a running butler's dashboard, with a ticket where a login is needed."""

import os
import sys
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

from butlers import app
from butlers.caller import Caller
from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import ConfigurationFault, Unavailable
from butlers.http_body import read_json_object

_TIMEOUT_SECONDS = 3.0
_MAX_HEALTH_BYTES = 65_536
_ROOT = 0
_LISTEN = "0A"
_TABLES_OF_SOCKETS = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


async def dashboard_address(folder: Path, port: int | None, tenant: str | None) -> str:
    """Return the address of the dashboard. Raises `Unavailable` if the butler does not run."""
    config = app.load_configuration(folder)
    butler = config.butler
    if not butler.dashboard.enabled:
        raise ConfigurationFault(
            "the dashboard is turned off", hint="Set `enabled = true` under [butler.dashboard] in butler.toml."
        )
    port = port or butler.port
    base = http_address(butler.http.host, port)
    await _require_running(base, butler.name)
    users = listening_users(port)
    require_own_listener(folder, port, users)
    if butler.auth.mode == "local":
        return f"{base}{butler.dashboard.base_path}/"
    if not users:
        raise Unavailable(
            f"the system does not tell who listens on the port {port}, so no ticket is made",
            hint="Run `butlers open` as the user who runs the butler, or log in with a key.",
        )
    return f"{base}{butler.dashboard.base_path}/login#ticket={await _make_ticket(config, tenant)}"


async def _require_running(base: str, name: str) -> None:
    import httpx2

    health = None
    with suppress(httpx2.HTTPError):
        async with (
            httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=False) as http,
            http.stream("GET", f"{base}/health") as response,
        ):
            health = await read_json_object(response, _MAX_HEALTH_BYTES)
    if health is None or health.get("butler") != name:
        raise Unavailable(
            f"the butler {name} does not answer at {base}", hint="Start it with `butlers run`, or name its --port."
        )


def require_own_listener(folder: Path, port: int, users: AbstractSet[int]) -> None:
    """Raise `Unavailable` if another user listens on the port: any process can answer with the butler's name.

    Allowed are this user, the owner of the butler's folder, and root.
    """
    allowed = {os.geteuid(), folder.stat().st_uid, _ROOT}
    if not users <= allowed:
        raise Unavailable(
            f"another user of this machine listens on the port {port}",
            hint="Stop that program, or run the butler on another port and name it with --port.",
        )


def listening_users(port: int) -> set[int]:
    """Return the ids of the users who listen on a TCP port, as far as the system tells.

    Linux tells of every user. Other systems tell of the processes that this user may look into.
    """
    return _users_of_sockets(port) if sys.platform == "linux" else users_of_processes(port)


def _users_of_sockets(port: int) -> set[int]:
    found = set()
    for table in _TABLES_OF_SOCKETS:
        with suppress(OSError):
            rows = [line.split() for line in table.read_text().splitlines()[1:]]
            found |= {int(row[7]) for row in rows if row[3] == _LISTEN and row[1].endswith(f":{port:04X}")}
    return found


def users_of_processes(port: int) -> set[int]:
    """Return the ids of the users whose visible processes listen on a TCP port."""
    import psutil

    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            sockets = process.net_connections("tcp")
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in sockets):
                found.add(process.uids().effective)
    return found


async def _make_ticket(config: Configuration, tenant: str | None) -> str:
    from butlers.host import browser_sessions

    caller = Caller(tenant=tenant or config.butler.auth.tenant, butler=config.butler.name, actor="local")
    async with (
        app.migrated_database(config, read_environment(), stop=False) as location,
        location.owner_connection() as owner,
    ):
        return await browser_sessions.make_ticket(owner, caller)
