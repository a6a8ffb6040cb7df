"""PgBouncer of the system between butler and server, in both modes, without a list of parameters to ignore."""

import asyncio
import json

import pytest

from butlers import app, doctor
from butlers.connector import Connector
from butlers.pooling import Pooling, detect_pooling
from servers.pgbouncer import Pooler, pgbouncer
from servers.site import ExternalSite, new_administered_site, new_site
from servers.test_servers_roles import store

MODES = ["session", "transaction"]
SETTINGS = (
    "plan_cache_mode", "search_path", "lock_timeout", "idle_in_transaction_session_timeout", "timezone",
    "random_page_cost", "ivfflat.probes", "hnsw.ef_search", "hnsw.iterative_scan", "hnsw.max_scan_tuples",
)  # fmt: skip


@pytest.fixture(params=MODES)
def pooler(request, server_of):
    with pgbouncer(server_of("16"), request.param) as pooler:
        yield pooler


async def settings_of(site: ExternalSite) -> dict[str, str]:
    """Return the settings that a transaction of the butler has."""
    async with (
        app.open_butler(site.config, site.environment) as butler,
        butler.database.transaction(butler.caller()) as tx,
    ):
        return {name: await tx.fetchval("select current_setting($1)", name) for name in SETTINGS}


async def test_a_pooler_and_its_mode_are_found_out(pooler, tmp_path):
    site = await new_site(pooler.server, tmp_path)
    assert await detect_pooling(Connector(site.url)) == Pooling()
    through = Connector(pooler.in_front_of(site).url)
    keeps = pooler.mode == "session"
    assert await detect_pooling(through) == Pooling(is_pooled=True, keeps_session=keeps, keeps_statements=keeps)


async def test_a_butler_behind_a_pooler_has_the_settings_of_a_direct_one(pooler, tmp_path):
    site = await new_administered_site(pooler.server, tmp_path)
    direct = await settings_of(site)
    assert await settings_of(pooler.in_front_of(site)) == direct
    assert direct["hnsw.ef_search"] == "400"


async def test_jobs_and_fifty_calls_at_once_work_behind_a_pooler(pooler, tmp_path):
    """A lock of a connection would stay on one of the pooler's and refuse the second run of a job."""
    site = pooler.in_front_of(await new_administered_site(pooler.server, tmp_path))
    async with app.open_scheduler(site.folder, env=site.environment) as (butler, scheduler):
        for _ in range(3):
            for job in app.all_jobs(butler):
                await scheduler.run(job)
        await asyncio.gather(*(store(butler, f"{number}") for number in range(50)))
        async with butler.database.transaction(butler.caller("stranger")) as tx:
            assert await tx.fetchval("select count(*) from rules") == 0
        assert len(await store(butler, "last")) == 51
    kept = "select count(*) from pg_locks where locktype = 'advisory'"
    assert await pooler.server.fetch_value(kept) == 0


async def test_two_processes_share_a_pooler_with_few_connections(server_of, tmp_path):
    """The statements of one process would otherwise have the names of the other's."""
    with pgbouncer(server_of("18"), "transaction", default_pool_size=3) as pooler:
        site = pooler.in_front_of(await new_administered_site(pooler.server, tmp_path))
        async with (
            app.open_butler(site.config, site.environment) as first,
            app.open_butler(site.config, site.environment) as second,
        ):
            both = (first, second)
            await asyncio.gather(*(store(both[number % 2], f"{number}") for number in range(60)))
            assert len(await store(first, "last")) == 61


@pytest.mark.slow
async def test_the_commands_work_behind_a_pooler_and_doctor_shows_it(pooler: Pooler, tmp_path):
    site = await new_administered_site(pooler.server, tmp_path)
    through = pooler.in_front_of(site)
    migrated = through.butlers("migrate", site.folder)
    assert migrated.returncode == 0, migrated.stderr
    key = through.butlers("key", "create", site.folder, "--tenant", "acme", "--actor", "robot")
    assert key.returncode == 0, key.stderr
    lines = {each["name"]: each for each in json.loads(through.butlers("doctor", site.folder, "--json").stdout)}
    assert "behind a pooler" in lines["database"]["found"]
    assert ("not used" in lines["database"]["found"]) == (pooler.mode == "transaction")
    checks = await doctor.run_checks(site.folder, site.environment)
    assert "pooler" not in json.dumps([each.found for each in checks])
    for _ in range(2):
        for job in ("decay_sweep", "index_upkeep"):
            ran = through.butlers("jobs", "run", site.folder, job)
            assert ran.returncode == 0, ran.stderr
