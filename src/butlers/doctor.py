"""Looks at everything a butler needs, one thing after the other, and says how to mend what is wrong."""

from collections.abc import AsyncIterator
from pathlib import Path

from butlers import app, backup, db
from butlers.app import Butler
from butlers.config import Configuration
from butlers.contract import Check
from butlers.cron import local_now
from butlers.db import PlainConnection
from butlers.environment import Environment
from butlers.errors import Fault, Unavailable
from butlers.host import job_runs, module_loader, runtimes
from butlers.provision import DatabaseLocation


async def run_checks(folder: Path, environment: Environment) -> list[Check]:
    """Every check, up to the first that makes the ones after it pointless."""
    checks: list[Check] = []
    try:
        async for check in _checks(folder, environment):
            checks.append(check)  # noqa: PERF401 — what was found before a failure stays
    except Fault as fault:
        checks.append(Check(_current_check(checks), "fail", fault.message, fault.advice))
    return checks


_LATE_SECONDS = 600
_OLD_DAYS = 30
_ORDER = ("configuration", "runtime", "database", "schema", "row-level security", "modules")


def _current_check(checks: list[Check]) -> str:
    """The check that was under way: the first that has no line yet."""
    done = {check.name for check in checks}
    return next((name for name in _ORDER if name not in done), "modules")


async def _checks(folder: Path, environment: Environment) -> AsyncIterator[Check]:
    config = app.load_configuration(folder)
    enabled = [name for name, module in config.modules.items() if module.enabled]
    yield Check("configuration", "ok", f"butler {config.butler.name}, modules: {', '.join(enabled) or 'none'}")
    yield _runtime(config)
    async with app.locate_database(config, environment) as place:
        with db.translate_errors():
            yield await _database(place)
            yield await _schema(place, config)
            await app.refuse_unsafe_database(place)
        yield Check("row-level security", "ok", f"forced on every table; {place.app} can't lift it")
        async for check in _modules(place, config):
            yield check


def _runtime(config: Configuration) -> Check:
    """Whether sessions can be started: a program that is there, or a server with its key."""
    runtime = config.butler.runtime
    try:
        runtimes.make_runtime(runtime, config.folder).check()
    except Unavailable as fault:
        return Check("runtime", "warn", fault.message, f"{fault.advice} Memory itself works without.")
    found = f"{runtime.model} at {runtime.base_url}" if runtime.type == "openai" else f"{runtime.command[0]} is there"
    return Check("runtime", "ok", found)


async def _database(place: DatabaseLocation) -> Check:
    async with app.application_connection(place) as connection:
        version = await connection.fetchval("show server_version")
        extensions = await _extensions(connection)
        where = "embedded" if place.cluster else "external"
        return Check("database", "ok", f"{where} PostgreSQL {version}; {extensions}")


async def _extensions(connection: PlainConnection) -> str:
    rows = await connection.fetch(
        "select extname, extversion from pg_extension where extname <> 'plpgsql' order by extname"
    )
    return ", ".join(f"{row['extname']} {row['extversion']}" for row in rows) or "no extensions yet"


async def _schema(place: DatabaseLocation, config: Configuration) -> Check:
    migration = await app.ensure_migrated(place, app.migration_branches(config))
    heads = ", ".join(branch.head for branch in app.migration_branches(config))
    return Check("schema", "ok", f"at {heads}" if migration is None else f"migrated now, to {heads}")


async def _jobs(butler: Butler) -> Check:
    """Whether what should run by the clock did, and went well."""
    named = {job_runs.job_key(job, butler.config.butler.name): job for job in app.all_jobs(butler)}
    now = local_now()
    standings = await job_runs.job_statuses(butler.database, named, now)
    if failed := [each for each in standings if each.status in {"failed", "lost"}]:
        said = "; ".join(f"{each.job}: {each.error}" for each in failed)
        return Check("jobs", "warn", said, f"Mend it, or try `butlers jobs run DIR {failed[0].job}`.")
    if late := [each.job for each in standings if each.overdue(now, _LATE_SECONDS)]:
        said = f"{', '.join(late)} should have run by now"
        return Check("jobs", "warn", said, "Jobs run while the butler runs: `butlers run DIR`.")
    if not standings:
        return Check("jobs", "ok", "none")
    first = min(standings, key=lambda each: each.next_run)
    return Check("jobs", "ok", f"{len(standings)}, the next is {first.job} at {first.next_run:%Y-%m-%d %H:%M}")


async def _backup(butler: Butler) -> Check:
    """When the last backup was made."""
    rows = {row["job"]: row for row in await job_runs.latest_runs(butler.database)}
    made = rows[backup.BACKUP_JOB]["succeeded_at"] if backup.BACKUP_JOB in rows else None
    how = "`butlers backup DIR FILE` makes one."
    if made is None:
        return Check("backup", "warn", "there is none yet", how)
    days = (local_now() - made).days
    told = f"the last one is of {made.astimezone():%Y-%m-%d %H:%M}"
    return Check("backup", "warn", told, how) if days > _OLD_DAYS else Check("backup", "ok", told)


async def _modules(place: DatabaseLocation, config: Configuration) -> AsyncIterator[Check]:
    kinds = module_loader.modules_in_order({module.name: module for module in app.MODULES}, config.modules)
    database = await db.connect(place.dsn, pool_size=2)
    try:
        starts = app.make_spawner(config, database)
        started = await module_loader.start_modules(kinds, config.modules, database, config.butler.name, starts)
        for module in started:
            for check in await module.checks():
                yield check
        butler = Butler(config, place, database, started, starts)
        yield await _jobs(butler)
        yield await _backup(butler)
        await module_loader.stop_modules(started)
    finally:
        await database.close()
