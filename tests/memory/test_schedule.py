"""Scheduled maintenance: a butler in its own process whose jobs run every second."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx2
import pytest
from fastmcp import Client

from butlers.host import api_keys
from butlers.host.api_keys import NewKey
from database.butler_processes import connected, eventually
from memory.memory_fixtures import Archive, Tools
from memory.scripted_model import EVERY_SECOND, write_scripted_butler

TENANTS = ("ada", "bob")
FREQUENT_JOBS = ("consolidation_retry", "decay_sweep", "episode_cleanup", "reembed", "index_upkeep")
SCHEDULE = "[butler.auth]\nmode = \"keys\"\n[modules.memory.schedule]\nconsolidate = '0 0 1 1 *'\n" + "".join(
    f"{job} = '{EVERY_SECOND}'\n" for job in FREQUENT_JOBS
)
MAX_EPISODES = 3


def decayed_to(share):
    """Return columns of a memory that has this share of its confidence left."""
    return {
        "confidence": "1",
        "last_confirmed_at": f"now() - make_interval(secs => 86400 * -ln({share}::float8) / decay_rate)",
    }


@dataclass(frozen=True)
class TenantMemories:
    """Memories of one tenant, by the maintenance that is due for each."""

    fades: str
    expires: str
    recovers: str
    stays: str
    stale: str
    harmful: str
    forgotten: str
    expired: str
    crowded: str
    failed: str
    fresh: str


async def store_aged_memories(tools, archive, butler):
    """Store old memories of a tenant; jobs may process the first while the last are stored."""

    async def episode(content, **columns):
        stored = await tools("memory_store_episode", content=content, butler=butler)
        if columns:
            await archive.change("episode", stored["id"], **columns)
        return stored["id"]

    async def fact(predicate, permanence="standard", **columns):
        stored = await tools.fact(f"a {predicate} thing", predicate=predicate, permanence=permanence)
        await archive.change("fact", stored, **columns)
        return stored

    completed_work = {"consolidation_status": "'consolidated'"}
    expired = await episode("Too long ago", expires_at="now() - interval '1 hour'")
    crowded, _ = (
        await episode("First that was read", **completed_work),
        await episode("Second that was read", **completed_work),
    )
    harmful, forgotten = await tools.rule("Send without asking"), await tools.rule("Nobody needs this")
    for reason in ("it was wrong", "it was late", "it was rude"):
        await tools("memory_mark_harmful", rule_id=harmful, reason=reason)
    await archive.change("rule", forgotten, **decayed_to(0.01))
    return TenantMemories(
        fades=await fact("fading", **decayed_to(0.1)),
        expires=await fact("expiring", **decayed_to(0.01)),
        recovers=await fact("recovering", metadata="""'{"status": "fading"}'""", last_confirmed_at="now()"),
        stays=await fact("permanent", "permanent", last_confirmed_at="now() - interval '9 years'"),
        stale=await fact("unembedded", embedding="null", embedding_version_id="null"),
        harmful=harmful,
        forgotten=forgotten,
        expired=expired,
        crowded=crowded,
        failed=await episode(
            "Could not be read at first",
            consolidation_status="'failed'",
            consolidation_attempts="1",
            next_consolidation_retry_at="now()",
        ),
        fresh=await episode("It happened today"),
    )


async def completed_work(archive, stored):
    """Return the maintenance that is due, by name, and whether it is done."""

    async def fact(row_id):
        row = await archive.row("fact", row_id)
        return row["validity"], json.loads(row["metadata"]).get("status")

    harmful, forgotten = await archive.row("rule", stored.harmful), await archive.row("rule", stored.forgotten)
    episodes = await archive.rows("select id::text, consolidation_status as status from episodes")
    status = {row["id"]: row["status"] for row in episodes}
    return {
        "fading": await fact(stored.fades) == ("active", "fading"),
        "expiring": (await fact(stored.expires))[0] == "expired",
        "recovering": await fact(stored.recovers) == ("active", None),
        "embedding": (await archive.row("fact", stored.stale))["embedding"] is not None,
        "inverting": harmful["maturity"] == "anti_pattern",
        "forgetting": json.loads(forgotten["metadata"]).get("forgotten") is True,
        "cleaning": stored.expired not in status,
        "making room": stored.crowded not in status,
        "trying again": status.get(stored.failed) == "consolidated",
    }


async def assert_tools_agree(tools, stored):
    """Assert the same through the tools."""

    async def told(kind, row_id):
        return await tools("memory_get", memory_type=kind, memory_id=row_id)

    found = await tools.ids("memory_search", query="thing", types=["fact"], mode="keyword", min_confidence=0)
    assert stored.expires not in found
    assert {stored.fades, stored.recovers, stored.stays, stored.stale} <= set(found)
    lifecycles = {
        name: (await told("fact", getattr(stored, name)))["lifecycle"] for name in ("fades", "recovers", "stays")
    }
    assert lifecycles == {"fades": "fading", "recovers": "active", "stays": "active"}
    assert (await told("fact", stored.expires))["lifecycle"] == "expired"
    warning = await told("rule", stored.harmful)
    assert warning["content"].startswith("ANTI-PATTERN: Do NOT Send without asking")
    assert "it was rude" in warning["content"]
    rules = await tools.ids("memory_search", query="ask needs", types=["rule"], mode="keyword", min_confidence=0)
    assert stored.harmful in rules
    assert stored.forgotten not in rules
    for gone in (stored.expired, stored.crowded):
        assert (await tools.refusal("memory_get", memory_type="episode", memory_id=gone)).startswith("not_found")
    assert (await told("episode", stored.fresh))["content"] == "It happened today"
    stats = await tools("memory_stats")
    assert set(stats["jobs"]) == {*FREQUENT_JOBS, "consolidate"}
    assert {stats["jobs"][job]["last_status"] for job in FREQUENT_JOBS} <= {"succeeded", "running"}
    assert all(stats["jobs"][job]["last_run"] and not stats["jobs"][job]["last_error"] for job in FREQUENT_JOBS)
    assert (stats["jobs"]["consolidate"]["last_run"], stats["jobs"]["consolidate"]["last_status"]) == (None, None)
    assert (stats["episodes"]["total"], stats["facts"]["fading"], stats["facts"]["expired"]) == (MAX_EPISODES, 1, 1)


async def test_a_job_that_fails_is_seen_by_every_tenant_and_its_counts_by_none(tools, stranger, archive):
    await archive.rows(
        "insert into job_runs (tenant_id, job, status, finished_at, error, result)"
        " select 'default', job, 'failed', now(), 'unavailable: no model', $1"
        " from unnest('{decay_sweep,somebody/morning}'::text[]) job returning id",
        '{"warnings": ["a secret"]}',
    )
    try:
        for each in (tools, stranger):
            told = (await each("memory_stats"))["jobs"]
            assert (told["decay_sweep"]["last_status"], told["decay_sweep"]["last_error"]) == (
                "failed",
                "unavailable: no model",
            )
            assert set(told) == {*FREQUENT_JOBS, "consolidate"}
            assert "secret" not in json.dumps(told)
    finally:
        await archive.rows("delete from job_runs where job in ('decay_sweep', 'somebody/morning') returning id")


def metric_value(page, metric, job):
    """Return the value of a job's metric."""
    (line,) = [line for line in page.splitlines() if line.startswith(f'{metric}{{job="{job}"}} ')]
    return float(line.rsplit(" ", 1)[1])


@asynccontextmanager
async def connect_tenants(address, admin):
    """Yield the tools of each tenant and a key for the metrics."""
    async with AsyncExitStack() as stack:
        made = {}
        for tenant in TENANTS:
            _, key = await api_keys.create_key(admin, NewKey(tenant=tenant, actor="somebody"))
            made[tenant] = Tools(await stack.enter_async_context(Client(address, auth=key)), tenant)
        _, key = await api_keys.create_key(admin, NewKey(tenant="watch", actor="prometheus", roles=("admin",)))
        yield made, key


@pytest.fixture
def run_command(processes, home):
    """Run a command beside the butler and return its JSON output."""

    async def run(*words):
        asked = processes.python("-m", "butlers.cli", *map(str, words), "--json", BUTLERS_HOME=str(home))
        assert await asyncio.to_thread(asked.popen.wait, 40) == 0, asked.err.read_text()
        return json.loads(asked.out.read_text())

    return run


async def test_the_jobs_maintain_every_tenant_without_any_call(processes, home, cluster, tmp_path, run_command):
    """Scenario: Daily decay sweep
    Scenario: Episode cleanup on schedule
    """
    folder, _ = write_scripted_butler(tmp_path, f"alone{uuid4().hex[:8]}", extra=SCHEDULE)
    config = folder / "butler.toml"
    config.write_text(f"{config.read_text()}max_episodes = {MAX_EPISODES}\n")
    butler = processes.butler(folder, home)
    address = await asyncio.to_thread(butler.ready)
    async with (
        connected(cluster.dsn(f"butler_{folder.name}")) as admin,
        connect_tenants(address, admin) as (tools, key),
    ):
        archive = Archive(admin)
        lives = {tenant: await store_aged_memories(tools[tenant], archive, folder.name) for tenant in TENANTS}
        for tenant, stored in lives.items():
            for name in await completed_work(archive, stored):

                async def is_done(stored=stored, name=name):
                    return (await completed_work(archive, stored))[name]

                await eventually(is_done, f"{name} in {tenant}")
        for tenant, stored in lives.items():
            await assert_tools_agree(tools[tenant], stored)
            told = {
                (event["event_type"], event["entity_id"], event["actor"]) for event in await archive.events(tenant)
            }
            assert {
                ("fact_fading", stored.fades, "sweep"),
                ("fact_expired", stored.expires, "sweep"),
                ("rule_inverted", stored.harmful, "sweep"),
                ("rule_forgotten", stored.forgotten, "sweep"),
                ("episode_expired", stored.expired, "cleanup"),
            } <= told
        await _assert_shown_in_metrics_and_commands(archive, address, key, folder, run_command)
    assert await asyncio.to_thread(butler.end) == 0
    assert "Traceback" not in butler.err.read_text()


async def _assert_shown_in_metrics_and_commands(archive, address, key, folder, run_command):
    """Assert that the job runs are in the database, the metrics and the commands."""
    runs = await archive.rows("select job, status, scheduled_for from job_runs order by started_at")
    assert {run["job"] for run in runs if run["status"] == "succeeded"} == set(FREQUENT_JOBS)
    assert {run["status"] for run in runs} <= {"succeeded", "running"}
    assert len({(run["job"], run["scheduled_for"]) for run in runs}) == len(runs)
    now = (await archive.rows("select extract(epoch from now())::float8 as now"))[0]["now"]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=20) as client:
        page = (await client.get(address.replace("/mcp", "/metrics"))).text
    for job in FREQUENT_JOBS:
        assert metric_value(page, "butlers_job_failing", job) == 0
        assert -5 < metric_value(page, "butlers_job_next_run_timestamp_seconds", job) - now < 30
        assert abs(now - metric_value(page, "butlers_job_last_success_timestamp_seconds", job)) < 60
        assert f'butlers_job_runs_total{{job="{job}",outcome="succeeded"}}' in page
    assert metric_value(page, "butlers_job_next_run_timestamp_seconds", "consolidate") > now
    assert 'butlers_job_last_success_timestamp_seconds{job="consolidate"}' not in page
    rows, checks = await asyncio.gather(run_command("jobs", "list", folder), run_command("doctor", folder))
    listed = {row["job"]: row for row in rows}
    assert set(listed) == {*FREQUENT_JOBS, "consolidate"}
    assert all(listed[job]["succeeded_at"] and listed[job]["scheduled_for"] for job in FREQUENT_JOBS)
    assert (listed["consolidate"]["status"], listed["consolidate"]["started_at"]) == (None, None)
    (check,) = [check for check in checks if check["name"] == "jobs"]
    assert (check["state"], check["found"].startswith("6, the next is ")) == ("ok", True)
