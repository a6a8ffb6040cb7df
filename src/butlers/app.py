"""The composition root: butler.toml in, a running butler out. The only place that wires."""

import asyncio
import contextlib
import importlib
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from butlers import db, migrate, provision
from butlers.caller import Caller
from butlers.config import Configuration, ScheduleEntry, load
from butlers.config_types import http_address
from butlers.contract import Job, JobResult, Module
from butlers.db import Database, PlainConnection
from butlers.environment import Environment, read_environment
from butlers.errors import ConfigurationFault
from butlers.host.migrations import CORE
from butlers.migrate import Branch, Migration
from butlers.modules.memory import MemoryModule
from butlers.provision import DatabaseLocation

if TYPE_CHECKING:
    from butlers.host.scheduler import Scheduler
    from butlers.host.server import Server
    from butlers.host.spawner import SessionSpawner

MODULES: tuple[type[Module], ...] = (MemoryModule,)


@dataclass(frozen=True, slots=True)
class Butler:
    """A butler with its database open and its modules started."""

    config: Configuration
    place: DatabaseLocation
    database: Database
    modules: Sequence[Module]
    spawner: "SessionSpawner"

    def caller(self, tenant: str | None = None, actor: str = "local") -> Caller:
        """Somebody at this machine, inside the configured tenant or the one named."""
        return Caller(tenant=tenant or self.config.butler.auth.tenant, butler=self.config.butler.name, actor=actor)


def load_configuration(folder: Path, modules: Sequence[type[Module]] = MODULES) -> Configuration:
    """The butler's configuration, checked against every module there is."""
    return load(folder, {module.name: module.config_model for module in modules})


def migration_branches(config: Configuration, modules: Sequence[type[Module]] = MODULES) -> list[Branch]:
    """The migrations of the core and of every enabled module."""
    from butlers.host.module_loader import modules_in_order

    enabled = modules_in_order({module.name: module for module in modules}, config.modules)
    return [CORE, *(module.branch for module in enabled if module.branch is not None)]


@contextlib.asynccontextmanager
async def locate_database(
    config: Configuration, env: Environment, *, stop: bool = True
) -> AsyncIterator[DatabaseLocation]:
    """The butler's database server, for as long as the block lasts."""
    place = await provision.locate(config, env)
    try:
        yield place
    finally:
        await place.release(stop=stop)


@contextlib.asynccontextmanager
async def migrated_database(
    config: Configuration, env: Environment, *, stop: bool = True
) -> AsyncIterator[DatabaseLocation]:
    """The butler's database, migrated, without anything started on it."""
    async with locate_database(config, env, stop=stop) as place:
        with db.translate_errors():
            await ensure_migrated(place, migration_branches(config))
        yield place


async def ensure_migrated(place: DatabaseLocation, wanted: Sequence[Branch]) -> Migration | None:
    """Bring the schema to head; None when it is there already, which costs one query and no Alembic."""
    return None if await _at_head(place, wanted) else await upgrade_schema(place, wanted)


async def upgrade_schema(place: DatabaseLocation, wanted: Sequence[Branch]) -> Migration:
    """Bring the schema to head and grant the application its rights, as the owner."""
    if place.admin_dsn is None:
        raise ConfigurationFault(
            "migrating needs the owner of the tables, and only the application's role is known",
            hint="Set BUTLERS_ADMIN_DATABASE_URL to the owner and run `butlers migrate`.",
        )
    return await migrate.upgrade(place.admin_dsn, wanted, app_role=place.app, owner=place.owner)


async def _at_head(place: DatabaseLocation, wanted: Sequence[Branch]) -> bool:
    """Whether nothing is to be migrated or granted, as far as the application's role can see."""
    async with application_connection(place) as connection:
        try:
            return not await migrate.pending_branches(connection, wanted)
        except migrate.MigrationFault:
            # A role that was never granted anything. The owner's look at it settles the matter.
            if place.admin_dsn is None:
                raise
            return False


async def refuse_unsafe_database(place: DatabaseLocation) -> None:
    """Refuse to serve unless tenants are walled off for the role the application uses."""
    async with application_connection(place) as connection:
        await provision.refuse_unsafe(connection)


@contextlib.asynccontextmanager
async def application_connection(place: DatabaseLocation) -> AsyncIterator[PlainConnection]:
    """A connection of the application's role, outside of any tenant."""
    connection = await provision.connect(place.dsn)
    try:
        yield connection
    finally:
        await connection.close()


def make_spawner(config: Configuration, database: Database) -> "SessionSpawner":
    """What starts the butler's sessions."""
    from butlers.host import runtimes
    from butlers.host.spawner import SessionSpawner

    butler = config.butler
    runtime = runtimes.make_runtime(butler.runtime, config.folder)
    return SessionSpawner(
        runtime,
        database,
        butler.runtime.timeout_seconds,
        folder=config.folder,
        config=butler.sessions,
        # Whoever called has to be told that a session runs before the call is given up.
        patience=butler.limits.call_timeout_seconds * 2 / 3,
    )


@contextlib.asynccontextmanager
async def open_butler(
    config: Configuration, env: Environment, modules: Sequence[type[Module]] = MODULES
) -> AsyncIterator[Butler]:
    """A butler ready to work: database migrated and checked, modules started; all of it ended with the block."""
    from butlers.host import module_loader as loader

    kinds = loader.modules_in_order({module.name: module for module in modules}, config.modules)
    async with locate_database(config, env) as place, place.watch_server():
        with db.translate_errors():
            await ensure_migrated(place, migration_branches(config, modules))
            await refuse_unsafe_database(place)
        database = await db.connect(place.dsn, config.butler.database.pool_size, place.owner_connection)
        try:
            starts = make_spawner(config, database)
            started = await loader.start_modules(kinds, config.modules, database, config.butler.name, starts)
            try:
                yield Butler(config, place, database, started, starts)
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
) -> None:
    """Run the butler over HTTP until SIGTERM or SIGINT; `announce` hears its address once it serves."""
    from butlers.host import http

    cancel_on_sigterm()
    config = load_configuration(folder, modules)
    meanwhile = _preload_server()
    host, limits = config.butler.http.host, config.butler.limits
    with http.bind_socket(host, config.butler.port if port is None else port) as listener:
        url = f"{http_address(host, listener.getsockname()[1])}/mcp"
        async with (
            open_butler(config, read_environment(), modules) as butler,
            open_server(butler, after=meanwhile) as server,
        ):
            from butlers.host.server import http_app

            await http.serve(
                http_app(server),
                listener,
                grace=limits.grace_seconds,
                ready=lambda: announce(url),
                told=server.told_to_stop,
            )


async def serve_stdio(folder: Path, *, modules: Sequence[type[Module]] = MODULES) -> None:
    """Run the butler over stdin and stdout until the client leaves or a signal comes."""
    from butlers.host import stdio

    cancel_on_sigterm()
    config = load_configuration(folder, modules)
    meanwhile = _preload_server()
    async with (
        open_butler(config, read_environment(), modules) as butler,
        open_server(butler, over_http=False, after=meanwhile) as server,
    ):
        grace = config.butler.limits.grace_seconds
        await stdio.serve(server.mcp, grace=grace, idle=server.door.idle, told=server.told_to_stop)


def cancel_on_sigterm() -> None:
    """Let a SIGTERM that comes while no server listens for it end the work cleanly, embedded server included."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _preload_server() -> "asyncio.Future[object]":
    """The half second that importing FastMCP takes, spent while the database server starts."""
    return asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "butlers.host.server"))


def all_jobs(butler: Butler) -> list[Job]:
    """What runs by the clock: the modules' jobs, and the prompts of the configuration."""
    brought = [job for module in butler.modules for job in module.jobs()]
    taken = {job.name for job in brought}
    for place, entry in enumerate(butler.config.butler.schedule):
        if entry.name in taken:
            raise ConfigurationFault(
                f"butler.schedule[{place}].name: '{entry.name}' is the name of a job of its own",
                hint="Give the prompt another name.",
            )
    return [*brought, *(_prompt_job(butler, entry) for entry in butler.config.butler.schedule)]


def _prompt_job(butler: Butler, entry: ScheduleEntry) -> Job:
    """A session that starts by the clock."""

    async def run(caller: Caller) -> JobResult:
        answered = await butler.spawner.spawn(caller, entry.prompt, trigger_source=f"schedule:{entry.name}")
        return {"session_id": str(answered.session_id), "characters": len(answered.text)}

    return Job(entry.name, entry.cron, run, shared=False)


@contextlib.asynccontextmanager
async def open_scheduler(
    folder: Path, modules: Sequence[type[Module]] = MODULES
) -> "AsyncIterator[tuple[Butler, Scheduler]]":
    """A butler and its jobs, none of them started: for whoever looks at them or runs one by hand."""
    from butlers.host.metrics import Metrics
    from butlers.host.scheduler import Scheduler

    async with open_butler(load_configuration(folder, modules), read_environment(), modules) as butler:
        yield butler, Scheduler(butler.database, butler.caller(), all_jobs(butler), Metrics())


@contextlib.asynccontextmanager
async def open_server(
    butler: Butler,
    *,
    over_http: bool = True,
    by_the_clock: bool = True,
    after: "asyncio.Future[object] | None" = None,
) -> "AsyncIterator[Server]":
    """The butler's server, with its sessions attached to it and its jobs on their schedule."""
    if after is not None:
        await after
    from butlers.host import auth
    from butlers.host.local_client import LocalToolClient
    from butlers.host.metrics import Metrics
    from butlers.host.scheduler import Scheduler
    from butlers.host.server import BoundTool, build_server
    from butlers.host.session_gateway import SessionGateway
    from butlers.host.trigger_tool import TOOLS

    config, database, metrics = butler.config.butler, butler.database, Metrics()
    offers = [BoundTool(tool, module.state) for module in butler.modules for tool in module.tools()]
    gauges = {module.name: module.gauges for module in butler.modules}
    further = [BoundTool(tool, butler.spawner) for tool in TOOLS] if config.sessions.tool else []
    scheduler = Scheduler(database, butler.caller(actor="scheduler"), all_jobs(butler), metrics)
    guard = auth.make_auth_provider(config.auth, database) if over_http else None
    server = build_server(
        config,
        database,
        [*offers, *further],
        gauges,
        metrics,
        guard=guard,
        jobs=scheduler.job_statuses,
        told_to_stop=scheduler.request_stop,
    )
    desk = SessionGateway(
        lambda guard, desk: build_server(config, database, offers, {}, metrics, guard=guard, observe=desk.note)
    )
    butler.spawner.attach(LocalToolClient(server.mcp, frozenset(offer.tool.name for offer in offers)), desk)
    try:
        if by_the_clock:
            await butler.spawner.recover(butler.caller(actor="host"))
            scheduler.start()
        yield server
    finally:
        await scheduler.stop(config.limits.grace_seconds)
        await butler.spawner.stop()
        await desk.close()
