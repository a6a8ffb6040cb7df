"""The checks behind `butlers connect --check`: files, trust, and the tools that the agent sees."""

import asyncio
from dataclasses import replace

from butlers.agents import Probe, Slot
from butlers.connect.editors import EDITORS, table_of
from butlers.connect.entry import Connection, server_entry
from butlers.connect.file_change import read_text
from butlers.connect.planning import has_hooks, hook_paths, plan_hooks, server_path
from butlers.connect.probes import ask_agent, ask_codex, start_entry
from butlers.contract import Check
from butlers.environment import read_environment
from butlers.errors import Fault
from butlers.hooks.health import check_outbox

_PROBE_TIMEOUT_SECONDS = 90.0


async def check_connection(connection: Connection) -> list[Check]:
    """Return the checks of a connection; without an entry in the agent's files only that one."""
    checks = check_files(connection)
    over_http = _configured_transport(connection)
    if over_http is None:
        return checks
    return [
        *checks,
        *await _probe(replace(connection, over_http=over_http)),
        check_outbox(read_environment().home, connection.config.folder),
    ]


def check_files(connection: Connection) -> list[Check]:
    """Return whether the agent's files have the server and the hooks as they are written now."""
    over_http = _configured_transport(connection)
    if over_http is None:
        found = f"{server_path(connection)} has no server {connection.server_name}"
        return [Check("server", "fail", found, f"Run {_command(connection)}.")]
    checks = [_check_server(replace(connection, over_http=over_http))]
    return [*checks, _check_hooks(connection)] if connection.agent.hooks else checks


def _configured_transport(connection: Connection) -> bool | None:
    """Return whether the agent's entry has an address; None without an entry."""
    entry = _entry(connection)
    template = connection.agent.servers.http or {}
    addresses = {key for key, value in template.items() if value is Slot.URL}
    return None if entry is None else bool(addresses & set(entry))


def _entry(connection: Connection) -> dict[str, object] | None:
    servers, path = connection.agent.servers, server_path(connection)
    entry = table_of(EDITORS[servers.format], path, read_text(path), servers.table).get(connection.server_name)
    return entry if isinstance(entry, dict) else None


def _check_server(connection: Connection) -> Check:
    way = "over HTTP" if connection.over_http else "over stdio"
    found = f"{server_path(connection)} has {connection.server_name} {way}"
    if _entry(connection) == server_entry(connection):
        return Check("server", "ok", found)
    return Check("server", "warn", f"{found}, but not as it is written now", f"Run {_command(connection)} again.")


def _check_hooks(connection: Connection) -> Check:
    variants = [connection, replace(connection, is_local=True)] if connection.project else [connection]
    current = next((variant for variant in variants if not plan_hooks(variant)), None)
    if current:
        return Check("hooks", "ok", f"{hook_paths(current)[0]} has the hooks")
    if has_hooks(connection):
        found = "the hooks are not as they are written now"
        return Check("hooks", "warn", found, f"Run {_command(connection)} again.")
    return Check("hooks", "fail", f"{hook_paths(connection)[0]} has no hooks", f"Run {_command(connection)}.")


async def _probe(connection: Connection) -> list[Check]:
    """Ask the agent itself; start the entry as the agent would where it can't be asked."""
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
            match connection.agent.probe:
                case "codex":
                    checks = await ask_codex(connection)
                case Probe() as probe:
                    checks = await ask_agent(connection, probe)
                case None:
                    checks = None
            return [await start_entry(connection)] if checks is None else checks
    except TimeoutError:
        fix = f"Run `butlers doctor {connection.folder}`."
        return [Check("tools", "fail", f"no answer within {_PROBE_TIMEOUT_SECONDS:g} s", fix)]
    except Fault as fault:
        return [Check("tools", "fail", fault.message, fault.hint)]


def _command(connection: Connection) -> str:
    place = f" --project {connection.project}" if connection.project else ""
    user = " --user" if not connection.project and connection.agent.has_project_files else ""
    return f"`butlers connect {connection.folder} {connection.agent.name}{place}{user}`"
