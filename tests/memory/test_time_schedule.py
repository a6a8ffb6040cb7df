"""Time goes by and nobody calls anything: a butler in a process of its own, whose jobs run every second."""

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
from database.stage import connected, eventually
from memory.stage import Archive, Tools
from memory.thinking import EVERY_SECOND, write_thinking_butler

TENANTS = ("ada", "bob")
OFTEN = ("consolidation_retry", "decay_sweep", "episode_cleanup", "reembed", "index_upkeep")
SCHEDULE = "[butler.auth]\nmode = \"keys\"\n[modules.memory.schedule]\nconsolidate = '0 0 1 1 *'\n" + "".join(
    f"{job} = '{EVERY_SECOND}'\n" for job in OFTEN
)
MOST_EPISODES = 3


def believed(share):
    """Columns of a memory of which only that share of its confidence is left by now."""
    return {
        "confidence": "1",
        "last_confirmed_at": f"now() - make_interval(secs => 86400 * -ln({share}::float8) / decay_rate)",
    }


@dataclass(frozen=True)
class Life:
    """The memories of one tenant, by what time has to do with each."""

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


async def lived(tools, archive, butler):
    """Memories as a tenant has them after a long time; jobs may be at work on the first while the last are made."""

    async def episode(content, **columns):
        stored = await tools("memory_store_episode", content=content, butler=butler)
        if columns:
            await archive.change("episode", stored["id"], **columns)
        return stored["id"]

    async def fact(predicate, permanence="standard", **columns):
        stored = await tools.fact(f"a {predicate} thing", predicate=predicate, permanence=permanence)
        await archive.change("fact", stored, **columns)
        return stored

    done = {"consolidation_status": "'consolidated'"}
    expired = await episode("Too long ago", expires_at="now() - interval '1 hour'")
    crowded, _ = await episode("First that was read", **done), await episode("Second that was read", **done)
    harmful, forgotten = await tools.rule("Send without asking"), await tools.rule("Nobody needs this")
    for reason in ("it was wrong", "it was late", "it was rude"):
        await tools("memory_mark_harmful", rule_id=harmful, reason=reason)
    await archive.change("rule", forgotten, **believed(0.01))
    return Life(
        fades=await fact("fading", **believed(0.1)),
        expires=await fact("expiring", **believed(0.01)),
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


async def done(archive, life):
    """What time has to do, by its name, and whether it has."""

    async def fact(row_id):
        row = await archive.row("fact", row_id)
        return row["validity"], json.loads(row["metadata"]).get("status")

    harmful, forgotten = await archive.row("rule", life.harmful), await archive.row("rule", life.forgotten)
    episodes = await archive.rows("select id::text, consolidation_status as status from episodes")
    status = {row["id"]: row["status"] for row in episodes}
    return {
        "fading": await fact(life.fades) == ("active", "fading"),
        "expiring": (await fact(life.expires))[0] == "expired",
        "recovering": await fact(life.recovers) == ("active", None),
        "embedding": (await archive.row("fact", life.stale))["embedding"] is not None,
        "inverting": harmful["maturity"] == "anti_pattern",
        "forgetting": json.loads(forgotten["metadata"]).get("forgotten") is True,
        "cleaning": life.expired not in status,
        "making room": life.crowded not in status,
        "trying again": status.get(life.failed) == "consolidated",
    }


async def as_the_tools_tell_it(tools, life):
    """The same once more, as an agent sees it."""

    async def told(kind, row_id):
        return await tools("memory_get", memory_type=kind, memory_id=row_id)

    found = await tools.ids("memory_search", query="thing", types=["fact"], mode="keyword", min_confidence=0)
    assert life.expires not in found
    assert {life.fades, life.recovers, life.stays, life.stale} <= set(found)
    lifecycles = {
        name: (await told("fact", getattr(life, name)))["lifecycle"] for name in ("fades", "recovers", "stays")
    }
    assert lifecycles == {"fades": "fading", "recovers": "active", "stays": "active"}
    assert (await told("fact", life.expires))["lifecycle"] == "expired"
    warning = await told("rule", life.harmful)
    assert warning["content"].startswith("ANTI-PATTERN: Do NOT Send without asking")
    assert "it was rude" in warning["content"]
    rules = await tools.ids("memory_search", query="ask needs", types=["rule"], mode="keyword", min_confidence=0)
    assert life.harmful in rules
    assert life.forgotten not in rules
    for gone in (life.expired, life.crowded):
        assert (await tools.refusal("memory_get", memory_type="episode", memory_id=gone)).startswith("not_found")
    assert (await told("episode", life.fresh))["content"] == "It happened today"
    stats = await tools("memory_stats")
    assert set(stats["jobs"]) == {*OFTEN, "consolidate"}
    assert {stats["jobs"][job]["last_status"] for job in OFTEN} <= {"succeeded", "running"}
    assert all(stats["jobs"][job]["last_run"] and not stats["jobs"][job]["last_error"] for job in OFTEN)
    assert (stats["jobs"]["consolidate"]["last_run"], stats["jobs"]["consolidate"]["last_status"]) == (None, None)
    assert (stats["episodes"]["total"], stats["facts"]["fading"], stats["facts"]["expired"]) == (MOST_EPISODES, 1, 1)


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
            assert set(told) == {*OFTEN, "consolidate"}
            assert "secret" not in json.dumps(told)
    finally:
        await archive.rows("delete from job_runs where job in ('decay_sweep', 'somebody/morning') returning id")


def number(page, metric, job):
    """What a scraper reads of a job."""
    (line,) = [line for line in page.splitlines() if line.startswith(f'{metric}{{job="{job}"}} ')]
    return float(line.rsplit(" ", 1)[1])


@asynccontextmanager
async def reached(address, admin):
    """Each tenant's way to the tools, and a key for the metrics."""
    async with AsyncExitStack() as stack:
        made = {}
        for tenant in TENANTS:
            _, key = await api_keys.create_key(admin, NewKey(tenant=tenant, actor="somebody"))
            made[tenant] = Tools(await stack.enter_async_context(Client(address, auth=key)), tenant)
        _, key = await api_keys.create_key(admin, NewKey(tenant="watch", actor="prometheus", roles=("admin",)))
        yield made, key


@pytest.fixture
def command(processes, home):
    """Runs a command of the program beside the butler and gives what it tells programs."""

    async def run(*words):
        asked = processes.python("-m", "butlers.cli", *map(str, words), "--json", BUTLERS_HOME=str(home))
        assert await asyncio.to_thread(asked.popen.wait, 40) == 0, asked.err.read_text()
        return json.loads(asked.out.read_text())

    return run


async def test_time_does_its_work_in_every_tenant_with_nobody_calling_anything(
    processes, home, cluster, tmp_path, command
):
    """Scenario: Daily decay sweep
    Scenario: Episode cleanup on schedule
    """
    folder, _ = write_thinking_butler(tmp_path, f"alone{uuid4().hex[:8]}", extra=SCHEDULE)
    config = folder / "butler.toml"
    config.write_text(f"{config.read_text()}max_episodes = {MOST_EPISODES}\n")
    butler = processes.butler(folder, home)
    address = await asyncio.to_thread(butler.ready)
    async with connected(cluster.dsn(f"butler_{folder.name}")) as admin, reached(address, admin) as (tools, key):
        archive = Archive(admin)
        lives = {tenant: await lived(tools[tenant], archive, folder.name) for tenant in TENANTS}
        for tenant, life in lives.items():
            for name in await done(archive, life):

                async def is_done(life=life, name=name):
                    return (await done(archive, life))[name]

                await eventually(is_done, f"{name} in {tenant}")
        for tenant, life in lives.items():
            await as_the_tools_tell_it(tools[tenant], life)
            told = {
                (event["event_type"], event["entity_id"], event["actor"]) for event in await archive.events(tenant)
            }
            assert {
                ("fact_fading", life.fades, "sweep"),
                ("fact_expired", life.expires, "sweep"),
                ("rule_inverted", life.harmful, "sweep"),
                ("rule_forgotten", life.forgotten, "sweep"),
                ("episode_expired", life.expired, "cleanup"),
            } <= told
        await _shown_everywhere(archive, address, key, folder, command)
    assert await asyncio.to_thread(butler.end) == 0
    assert "Traceback" not in butler.err.read_text()


async def _shown_everywhere(archive, address, key, folder, command):
    """The record of the runs, and how metrics and commands show it."""
    runs = await archive.rows("select job, status, scheduled_for from job_runs order by started_at")
    assert {run["job"] for run in runs if run["status"] == "succeeded"} == set(OFTEN)
    assert {run["status"] for run in runs} <= {"succeeded", "running"}
    assert len({(run["job"], run["scheduled_for"]) for run in runs}) == len(runs)
    now = (await archive.rows("select extract(epoch from now())::float8 as now"))[0]["now"]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=20) as client:
        page = (await client.get(address.replace("/mcp", "/metrics"))).text
    for job in OFTEN:
        assert number(page, "butlers_job_failing", job) == 0
        assert -5 < number(page, "butlers_job_next_run_timestamp_seconds", job) - now < 30
        assert abs(now - number(page, "butlers_job_last_success_timestamp_seconds", job)) < 60
        assert f'butlers_job_runs_total{{job="{job}",outcome="succeeded"}}' in page
    assert number(page, "butlers_job_next_run_timestamp_seconds", "consolidate") > now
    assert 'butlers_job_last_success_timestamp_seconds{job="consolidate"}' not in page
    rows, checks = await asyncio.gather(command("jobs", "list", folder), command("doctor", folder))
    listed = {row["job"]: row for row in rows}
    assert set(listed) == {*OFTEN, "consolidate"}
    assert all(listed[job]["succeeded_at"] and listed[job]["scheduled_for"] for job in OFTEN)
    assert (listed["consolidate"]["status"], listed["consolidate"]["started_at"]) == (None, None)
    (check,) = [check for check in checks if check["name"] == "jobs"]
    assert (check["state"], check["found"].startswith("6, the next is ")) == ("ok", True)
