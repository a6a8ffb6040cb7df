"""The composition root: the only module that wires configuration, database, modules and server together."""

import asyncio
import contextlib
import functools
import importlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from butlers import db, local_socket, migrate, provision, suitability
from butlers.caller import Caller
from butlers.config import Configuration, ScheduleEntry, load
from butlers.config_types import http_address
from butlers.contract import Job, JobResult, Module
from butlers.db import Database
from butlers.environment import Environment, read_environment
from butlers.errors import ConfigurationFault, Unavailable
from butlers.host.migrations import CORE
from butlers.migrate import Branch, Migration
from butlers.modules.memory import MemoryModule
from butlers.pooling import DIRECT
from butlers.provision import DatabaseLocation
from butlers.suitability import DatabaseTraits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from butlers.host.scheduler import Scheduler
    from butlers.host.server import Server
    from butlers.host.spawner import SessionSpawner

    MakePages = Callable[["Butler", Server], ASGIApp]

log = logging.getLogger("butlers.app")
MODULES: tuple[type[Module], ...] = (MemoryModule,)
RECOVERY_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Butler:
    """A butler with its database open and its modules started."""

    config: Configuration
    location: DatabaseLocation
    database: Database
    modules: Sequence[Module]
    spawner: "SessionSpawner"

    def caller(self, tenant: str | None = None, actor: str = "local") -> Caller:
        """Return a caller on this machine, in the given tenant or the configured one."""
        return Caller(tenant=tenant or self.config.butler.auth.tenant, butler=self.config.butler.name, actor=actor)


def load_configuration(folder: Path, modules: Sequence[type[Module]] = MODULES) -> Configuration:
    """Return the validated configuration of the butler in `folder`."""
    return load(folder, {module.name: module.config_model for module in modules})


def enabled_modules(config: Configuration, modules: Sequence[type[Module]] = MODULES) -> list[type[Module]]:
    """Return the modules that the configuration enables, dependencies first."""
    from butlers.host.module_loader import modules_in_order

    return modules_in_order({module.name: module for module in modules}, config.modules)


def migration_branches(config: Configuration, modules: Sequence[type[Module]] = MODULES) -> list[Branch]:
    """Return the migrations of the core and of every enabled module."""
    return [CORE, *(module.branch for module in enabled_modules(config, modules) if module.branch is not None)]


def branches_of(config: Configuration, revisions: Sequence[str]) -> list[Branch]:
    """Return the branches of these revisions and of the enabled modules; raise `UnknownRevision`."""
    known = [CORE, *(module.branch for module in MODULES if module.branch is not None)]
    if unknown := [each for each in revisions if not any(each in branch.revisions() for branch in known)]:
        raise migrate.UnknownRevision(
            f"the backup is at {', '.join(unknown)}, which this version of butlers does not know",
            hint="Upgrade butlers to the version that made this backup, or newer.",
        )
    enabled = migration_branches(config)
    return [branch for branch in known if branch in enabled or any(branch.owns(each) for each in revisions)]


@contextlib.asynccontextmanager
async def locate_database(
    config: Configuration, env: Environment, *, stop: bool = True
) -> AsyncIterator[DatabaseLocation]:
    """Yield the butler's database; an embedded server without other users is stopped at the end if `stop`."""
    location = await provision.locate(config, env)
    try:
        yield location
    finally:
        await location.release(stop=stop)


@contextlib.asynccontextmanager
async def migrated_database(
    config: Configuration, env: Environment, *, stop: bool = True
) -> AsyncIterator[DatabaseLocation]:
    """Yield the butler's database after migrating it, without starting any module."""
    async with locate_database(config, env, stop=stop) as location:
        with db.translate_errors():
            await ensure_migrated(location, migration_branches(config))
        yield location


async def ensure_migrated(location: DatabaseLocation, branches: Sequence[Branch]) -> Migration | None:
    """Migrate the schema to head; return None, after two queries and without Alembic, if it is there already."""
    async with provision.open_connection(location.dsn) as connection:
        try:
            if not await migrate.pending_branches(connection, branches):
                await migrate.refuse_missing_rights(connection, branches)
                return None
        except migrate.MigrationFault:
            # The role lacks rights. The upgrade, run by the owner, grants them.
            if location.admin_dsn is None:
                raise
    return await upgrade_schema(location, branches)


async def upgrade_schema(location: DatabaseLocation, branches: Sequence[Branch]) -> Migration:
    """Migrate the schema to head and grant the application its rights, as the owner.

    Raises `ConfigurationFault` when the owner's credentials are unknown.
    """
    if location.admin_dsn is None:
        raise ConfigurationFault(
            "migrating needs the owner of the tables, and only the application's role is known",
            hint="Set BUTLERS_ADMIN_DATABASE_URL to the owner and run `butlers migrate`.",
        )
    await refuse_unsuitable_database(location, branches, only_if_new=True)
    return await migrate.upgrade(location.admin_dsn, branches, app_role=location.app, owner=location.owner)


async def refuse_unsuitable_database(
    location: DatabaseLocation, branches: Sequence[Branch], *, only_if_new: bool = False
) -> DatabaseTraits:
    """Return the database's traits; raise a fault if a butler can't work in it.

    With `only_if_new`, commands such as `butlers backup` still reach the memories that are in an unsuitable one.
    """
    async with provision.open_connection(location.dsn) as connection:
        traits = await suitability.read_traits(connection)
    if traits.is_new or not only_if_new:
        suitability.refuse_unsuitable(traits, branches)
    return traits


async def _check_suitable(location: DatabaseLocation, branches: Sequence[Branch]) -> None:
    """Refuse an unsuitable database, and log what works less well in this one."""
    for each in suitability.shortcomings(await refuse_unsuitable_database(location, branches)):
        log.warning("the database of this butler: %s", each.found)


async def refuse_unsafe_database(location: DatabaseLocation) -> None:
    """Raise `ConfigurationFault` unless row-level security binds the application's role."""
    async with provision.open_connection(location.dsn) as connection:
        await provision.refuse_unsafe(connection)


def make_spawner(config: Configuration, database: Database) -> "SessionSpawner":
    """Return the spawner of the butler's sessions."""
    from butlers.host import runtimes
    from butlers.host.spawner import SessionSpawner

    butler = config.butler
    return SessionSpawner(
        runtimes.make_runtime(butler.runtime, config.folder),
        database,
        butler.runtime.timeout_seconds,
        folder=config.folder,
        config=butler.sessions,
        # The caller must learn that a session is running before the call itself times out.
        reply_seconds=butler.limits.call_timeout_seconds * 2 / 3,
    )


@contextlib.asynccontextmanager
async def open_butler(
    config: Configuration, env: Environment, modules: Sequence[type[Module]] = MODULES
) -> AsyncIterator[Butler]:
    """Yield a butler with its database migrated and checked and its modules started; stop it all at the end."""
    async with locate_database(config, env) as location, location.watch_server():
        branches = migration_branches(config, modules)
        with db.translate_errors():
            # The embedded server is made to suit.
            if location.cluster is None:
                await _check_suitable(location, branches)
            await ensure_migrated(location, branches)
            await refuse_unsafe_database(location)
        async with start_butler(config, location, modules, pool_size=config.butler.database.pool_size) as butler:
            yield butler


@contextlib.asynccontextmanager
async def start_butler(
    config: Configuration, location: DatabaseLocation, modules: Sequence[type[Module]] = MODULES, *, pool_size: int
) -> AsyncIterator[Butler]:
    """Yield a butler with its modules started on a database that is migrated already."""
    from butlers.host import module_loader as loader

    owner = location.owner_connection if location.has_direct_owner else None
    patience = config.butler.limits.database_patience_seconds
    pooling = DIRECT if location.cluster else None
    database = await db.connect(location.dsn, pool_size, owner, patience_seconds=patience, pooling=pooling)
    try:
        spawner = make_spawner(config, database)
        enabled = enabled_modules(config, modules)
        started = await loader.start_modules(enabled, config.modules, database, config.butler.name, spawner)
        try:
            yield Butler(config, location, database, started, spawner)
        finally:
            await loader.stop_modules(started)
    finally:
        await database.close()


async def serve_http(
    folder: Path,
    port: int | None = None,
    *,
    modules: Sequence[type[Module]] = MODULES,
    announce: Callable[[str], None] = lambda _: None,
    make_pages: "MakePages | None" = None,
) -> None:
    """Run the butler over HTTP until SIGTERM or SIGINT; call `announce` with its URL once it serves.

    `make_pages` makes the dashboard, which serves every path that is not the protocol's.
    """
    from butlers.host import http
    from butlers.host.connections import limits_from_config

    cancel_on_sigterm()
    config = load_configuration(folder, modules)
    host, grace = config.butler.http.host, config.butler.limits.grace_seconds
    with http.bind_socket(host, config.butler.port if port is None else port) as listener:
        url = f"{http_address(host, listener.getsockname()[1])}/mcp"
        async with _open_butler_and_server(config, modules, over_http=True) as (butler, server):
            from butlers.host.server import http_app

            pages = make_pages(butler, server) if make_pages and config.butler.dashboard.enabled else None
            limits, ready = limits_from_config(config.butler), functools.partial(announce, url)
            with listen_locally(config, read_environment()) as sockets:
                await http.serve(
                    http_app(server, pages),
                    [listener, *sockets],
                    limits,
                    grace=grace,
                    ready=ready,
                    on_signal=server.stop,
                    drain=config.butler.limits.drain_seconds,
                )


@contextlib.contextmanager
def listen_locally(config: Configuration, env: Environment) -> Iterator[list[socket.socket]]:
    """Yield the socket for the hooks, as a list: empty where calls need a key, or where it can't be opened."""
    with contextlib.ExitStack() as stack:
        opened = None
        if config.butler.auth.mode == "local":
            try:
                opened = stack.enter_context(local_socket.listen(env.home, config.folder))
            except Unavailable as fault:
                log.warning("hooks open the database themselves: %s", fault.message)
        yield [opened] if opened else []


async def serve_stdio(folder: Path, *, modules: Sequence[type[Module]] = MODULES) -> None:
    """Run the butler over stdin and stdout until the client disconnects or a signal arrives."""
    from butlers.host import stdio

    cancel_on_sigterm()
    config = load_configuration(folder, modules)
    grace = config.butler.limits.grace_seconds
    async with _open_butler_and_server(config, modules, over_http=False) as (_, server):
        idle = server.call_middleware.wait_until_idle
        await stdio.serve(server.mcp, grace=grace, idle=idle, on_signal=server.request_stop)


def cancel_on_sigterm() -> None:
    """Cancel the current task on SIGTERM, so that it cleans up even before a server handles signals."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


@contextlib.asynccontextmanager
async def _open_butler_and_server(
    config: Configuration, modules: Sequence[type[Module]], *, over_http: bool
) -> "AsyncIterator[tuple[Butler, Server]]":
    # Importing FastMCP takes half a second: a thread does it while the database server starts.
    imports = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "butlers.host.server"))
    async with open_butler(config, read_environment(), modules) as butler:
        await imports
        async with open_server(butler, over_http=over_http) as server:
            yield butler, server


def all_jobs(butler: Butler) -> list[Job]:
    """Return the modules' jobs and the prompts of [[butler.schedule]]; raise when two share a name."""
    module_jobs = [job for module in butler.modules for job in module.jobs()]
    taken = {job.name for job in module_jobs}
    for index, entry in enumerate(butler.config.butler.schedule):
        if entry.name in taken:
            raise ConfigurationFault(
                f"butler.schedule[{index}].name: '{entry.name}' is the name of a built-in job",
                hint="Give the prompt another name.",
            )
    return [*module_jobs, *(_prompt_job(butler, entry) for entry in butler.config.butler.schedule)]


def _prompt_job(butler: Butler, entry: ScheduleEntry) -> Job:
    async def run(caller: Caller) -> JobResult:
        result = await butler.spawner.spawn(caller, entry.prompt, trigger_source=f"schedule:{entry.name}")
        return {"session_id": str(result.session_id), "characters": len(result.text)}

    return Job(entry.name, entry.cron, run, shared=False)


@contextlib.asynccontextmanager
async def open_scheduler(
    folder: Path, modules: Sequence[type[Module]] = MODULES, env: Environment | None = None
) -> "AsyncIterator[tuple[Butler, Scheduler]]":
    """Yield a butler and a scheduler that is not started, to list its jobs or run one by hand."""
    from butlers.host.metrics import Metrics
    from butlers.host.scheduler import Scheduler

    config = load_configuration(folder, modules)
    async with open_butler(config, env or read_environment(), modules) as butler:
        yield butler, Scheduler(butler.database, butler.caller(), all_jobs(butler), Metrics())


@contextlib.asynccontextmanager
async def open_server(
    butler: Butler,
    *,
    over_http: bool = True,
    with_jobs: bool = True,
    recovery_seconds: float = RECOVERY_SECONDS,
) -> "AsyncIterator[Server]":
    """Yield the butler's server with its sessions attached and, if `with_jobs`, its scheduler running.

    With jobs, it also marks the sessions of killed processes as lost, every `recovery_seconds`.
    """
    from butlers.host import auth
    from butlers.host.connections import limits_for_sessions
    from butlers.host.local_client import LocalToolClient
    from butlers.host.metrics import Metrics
    from butlers.host.scheduler import Scheduler
    from butlers.host.server import BoundTool, build_server
    from butlers.host.session_gateway import SessionGateway
    from butlers.host.trigger_tool import TOOLS

    config, database, metrics = butler.config.butler, butler.database, Metrics()
    module_tools = [BoundTool(tool, module.state) for module in butler.modules for tool in module.tools()]
    gauges = {module.name: module.gauges for module in butler.modules}
    host_tools = [BoundTool(tool, butler.spawner) for tool in TOOLS] if config.sessions.trigger_tool else []
    scheduler = Scheduler(database, butler.caller(actor="scheduler"), all_jobs(butler), metrics)
    server = build_server(
        config,
        database,
        [*module_tools, *host_tools],
        gauges,
        metrics,
        guard=auth.make_auth_provider(config.auth, database) if over_http else None,
        jobs=scheduler.job_statuses,
        run_job=scheduler.run_by_name,
        request_stop=scheduler.request_stop,
        shares_rate=over_http,
    )
    gateway = SessionGateway(
        lambda gateway: build_server(
            config,
            database,
            module_tools,
            {},
            metrics,
            guard=gateway,
            connections=limits_for_sessions(config),
            observe=gateway.count_call,
        )
    )
    tool_names = frozenset(bound.tool.name for bound in module_tools)
    butler.spawner.attach(LocalToolClient(server.mcp, tool_names), gateway, metrics)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if with_jobs:
                recovery = butler.spawner.recover_regularly(butler.caller(actor="host"), recovery_seconds)
                await stack.enter_async_context(recovery)
                scheduler.start()
            yield server
    finally:
        await scheduler.stop(config.limits.grace_seconds)
        await butler.spawner.stop()
        await gateway.close()
