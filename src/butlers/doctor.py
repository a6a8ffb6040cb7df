"""The checks behind `butlers doctor`, each with a fix for what is wrong."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from butlers import app, backup, client_programs, db, suitability
from butlers.app import Butler
from butlers.config import Configuration
from butlers.connect_faults import ReadOnlyServer
from butlers.connector import Connector
from butlers.contract import Check
from butlers.cron import local_now
from butlers.environment import Environment
from butlers.errors import Fault, Unavailable
from butlers.hooks.health import check_outbox
from butlers.host import job_runs, runtimes
from butlers.migrate import Branch, quote_identifier
from butlers.pooling import detect_pooling
from butlers.provision import DatabaseLocation, open_connection


async def run_checks(folder: Path, environment: Environment) -> list[Check]:
    """Return every check, ending with the first failure that makes the remaining ones pointless."""
    checks: list[Check] = []
    try:
        async for check in _generate_checks(folder, environment):
            checks.append(check)  # noqa: PERF401 — keep the checks made before a failure
    except Fault as fault:
        # The check that was running is the first without a line.
        running = next((name for name in _ORDER if name not in {check.name for check in checks}), "modules")
        checks.append(Check(running, "fail", fault.message, fault.hint))
    return checks


async def run_live_checks(butler: Butler) -> list[Check]:
    """Return the checks that a running butler can make on itself, ending with the first database error."""
    checks = [_check_runtime(butler.config)]
    try:
        with db.translate_errors():
            checks.append(await _check_database(butler.location, app.migration_branches(butler.config)))
        for module in butler.modules:
            checks += await module.checks()
        checks += [await _check_jobs(butler), await _check_backup(butler)]
    except Fault as fault:
        checks.append(Check("database", "fail", fault.message, fault.hint))
    return checks


_OVERDUE_SECONDS = 600
_MAX_BACKUP_AGE_DAYS = 30
_OWNER_WITHOUT_CREATE = """
    select tableowner::text
      from pg_tables
     where schemaname = 'public' and tablename = 'alembic_version'
       and not has_schema_privilege(tableowner, 'public', 'create')
"""
_ORDER = ("configuration", "runtime", "outbox", "database", "schema", "row-level security", "modules")


async def _generate_checks(folder: Path, environment: Environment) -> AsyncIterator[Check]:
    config = app.load_configuration(folder)
    enabled = [name for name, module in config.modules.items() if module.enabled]
    yield Check("configuration", "ok", f"butler {config.butler.name}, modules: {', '.join(enabled) or 'none'}")
    yield _check_runtime(config)
    yield check_outbox(environment.home, config.folder)
    async with app.locate_database(config, environment) as location:
        with db.translate_errors():
            yield await _check_database(location, app.migration_branches(config))
            yield await _check_schema(location, config)
            await app.refuse_unsafe_database(location)
        yield Check("row-level security", "ok", f"forced on every table; {location.app} can't disable it")
        async with app.start_butler(config, location, pool_size=2) as butler:
            for module in butler.modules:
                for check in await module.checks():
                    yield check
            yield await _check_jobs(butler)
            yield await _check_backup(butler)
            yield await _check_restore(location)


def _check_runtime(config: Configuration) -> Check:
    """Check that sessions can be started: the program is installed, or the server's key is set."""
    runtime = config.butler.runtime
    try:
        runtimes.make_runtime(runtime, config.folder).check()
    except Unavailable as fault:
        return Check("runtime", "warn", fault.message, f"{fault.hint} Memory works without a runtime.")
    if runtime.type == "openai":
        return Check("runtime", "ok", f"{runtime.model} at {runtime.base_url}")
    return Check("runtime", "ok", f"{runtime.command[0]} is installed")


async def _check_database(location: DatabaseLocation, branches: Sequence[Branch]) -> Check:
    traits = await app.refuse_unsuitable_database(location, branches)
    async with open_connection(location.dsn) as connection:
        version = await connection.fetchval("show server_version")
        if await connection.fetchval("show transaction_read_only") == "on":
            raise ReadOnlyServer
        tls = ", TLS" if client_programs.server_traits(connection).uses_tls else ""
    where = "embedded" if location.cluster else "external"
    extensions = ", ".join(f"{name} {each}" for name, each in sorted(traits.extensions.items()) if name != "plpgsql")
    found = [f"{where} PostgreSQL {version}{tls}; {extensions or 'no extensions yet'}"]
    if location.cluster is None and (pooling := await detect_pooling(Connector(location.dsn))).is_pooled:
        found.append(str(pooling))
    problems = suitability.shortcomings(traits)
    found += [each.found for each in problems]
    return Check("database", "warn" if problems else "ok", "; ".join(found), " ".join(each.fix for each in problems))


async def _check_schema(location: DatabaseLocation, config: Configuration) -> Check:
    branches = app.migration_branches(config)
    migration = await app.ensure_migrated(location, branches)
    heads = ", ".join(branch.head for branch in branches)
    return Check("schema", "ok", f"at {heads}" if migration is None else f"migrated now, to {heads}")


async def _check_jobs(butler: Butler) -> Check:
    jobs = {job_runs.job_key(job, butler.config.butler.name): job for job in app.all_jobs(butler)}
    now = local_now()
    statuses = await job_runs.job_statuses(butler.database, jobs, now)
    if failed := [each for each in statuses if each.status in {"failed", "lost"}]:
        errors = "; ".join(f"{each.job}: {each.error}" for each in failed)
        return Check("jobs", "warn", errors, f"Fix the cause, or try `butlers jobs run DIR {failed[0].job}`.")
    if overdue := [each.job for each in statuses if each.is_overdue(now, _OVERDUE_SECONDS)]:
        found = f"{', '.join(overdue)} should have run by now"
        return Check("jobs", "warn", found, "Jobs run while the butler runs: `butlers run DIR`.")
    if not statuses:
        return Check("jobs", "ok", "none")
    first = min(statuses, key=lambda each: each.next_run)
    return Check("jobs", "ok", f"{len(statuses)}, the next is {first.job} at {first.next_run:%Y-%m-%d %H:%M}")


async def _check_backup(butler: Butler) -> Check:
    runs = await job_runs.latest_runs(butler.database)
    created_at = next((run["succeeded_at"] for run in runs if run["job"] == backup.BACKUP_JOB), None)
    fix = "`butlers backup DIR FILE` makes one."
    if created_at is None:
        return Check("backup", "warn", "there is no backup yet", fix)
    found = f"the last backup is from {created_at.astimezone():%Y-%m-%d %H:%M}"
    is_old = (local_now() - created_at).days > _MAX_BACKUP_AGE_DAYS
    return Check("backup", "warn", found, fix) if is_old else Check("backup", "ok", found)


async def _check_restore(location: DatabaseLocation) -> Check:
    """Check that the programs of a backup and a restore fit this server, and that the owner could restore."""
    async with open_connection(location.dsn) as connection:
        server = client_programs.server_traits(connection)
        owner = await connection.fetchval(_OWNER_WITHOUT_CREATE)
    try:
        dump = await client_programs.fitting_pg_dump(server, is_embedded=location.cluster is not None)
        restore = await client_programs.choose_pg_restore()
    except Unavailable as fault:
        return Check("restore", "warn", fault.message, fault.hint)
    tunnel = " through a TLS tunnel" if server.uses_tls and not dump.speaks_tls else ""
    programs = f"{dump} writes a backup{tunnel}, {restore} reads it"
    if restore.major < dump.major:
        fix = f"Install pg_restore of PostgreSQL {dump.major}."
        return Check("restore", "warn", f"{programs}, but is too old for that", fix)
    if owner is not None:
        fix = f"As the owner of the database, run: GRANT CREATE ON SCHEMA public TO {quote_identifier(owner)};"
        return Check("restore", "warn", f"{programs}, but {owner} may not create tables", fix)
    needed = "" if location.admin_dsn else ", where BUTLERS_ADMIN_DATABASE_URL names the owner"
    return Check("restore", "ok", f"{programs}{needed}")
