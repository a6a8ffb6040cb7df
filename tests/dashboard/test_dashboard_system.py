"""The system page, and running a job from it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import httpx2 as httpx
import pytest

from butlers import db
from butlers.app import Butler
from butlers.caller import Caller
from butlers.contract import Job
from butlers.dashboard import LazyDashboard
from butlers.errors import NotFound, Unavailable
from butlers.host.metrics import Metrics
from butlers.host.scheduler import JobRunningElsewhere, Scheduler
from butlers.modules.memory import MemoryModule
from dashboard.conftest import Site, open_page
from memory.memory_fixtures import build_tenant_server, serve_http


@asynccontextmanager
async def site_with_jobs(butler: Butler, memory, tenant: str, *jobs: Job) -> AsyncIterator[tuple[Site, Scheduler]]:
    """The pages of a butler that runs these jobs."""
    async with AsyncExitStack() as stack:
        scheduler = Scheduler(butler.database, butler.caller(tenant, "scheduler"), jobs, Metrics())
        server = replace(
            build_tenant_server(butler, memory, tenant), jobs=scheduler.job_statuses, run_job=scheduler.run_by_name
        )
        pages = LazyDashboard(replace(butler, config=replace(butler.config, butler=server.config)), server)
        address = await stack.enter_async_context(serve_http(server, pages))
        client = await stack.enter_async_context(httpx.AsyncClient(follow_redirects=False))
        stack.push_async_callback(scheduler.stop, 1.0)
        yield Site(address.removesuffix("/mcp"), client), scheduler


def make_job(name: str, run) -> Job:
    return Job(name, "0 3 * * *", run, shared=False)


async def test_the_checks_and_the_state_of_the_memory_are_shown(site, page, tools, butler):
    await tools("memory_store_episode", content="We met.", butler=butler.config.butler.name)
    await page.goto(f"{site.url}/system")
    rows = await page.locator("#checks ~ .table tbody tr").all_inner_texts()
    states = {row.split("\t")[1].strip(): row.split("\t")[0].strip() for row in rows}
    assert states["database"] == "ok"
    assert states["model"] == "ok"
    assert states["backup"] == "warn"
    assert "backlog" not in states
    ages = await page.locator("#backlog ~ .table tbody tr").all_inner_texts()
    assert ages[0].split() == ["less", "than", "an", "hour", "1"]
    text = await page.locator("main").inner_text()
    assert "Every memory has a vector of this version." in text
    assert "0 in 24 hours of 1,000,000 allowed." in text
    assert "all-MiniLM-L6-v2" in text
    assert "at most." in text


async def test_memories_that_wait_for_a_vector_are_counted(site, tools, archive):
    fact = await tools.fact("blue")
    await tools.rule("Ask before sending")
    await archive.change("fact", fact, embedding="null", embedding_version_id="null")
    assert "1 memories wait for a vector" not in (text := (await site.get("/system")).text)
    assert "1 memory waits for a vector of this version." in text


async def test_tokens_are_shown_by_day(site, page, tools, archive):
    await archive.connection.execute(
        "insert into consolidation_runs (tenant_id, butler, lease_token, input_tokens, output_tokens, started_at)"
        " values ($1, 'b', $2, 1000, 234, now() - interval '30 hours'), ($1, 'b', $2, 10, 1, now())",
        tools.tenant, str(uuid4()),
    )  # fmt: skip
    await page.goto(f"{site.url}/system")
    assert "11 in 24 hours of 1,000,000 allowed." in await page.locator("main").inner_text()
    await page.get_by_text("The numbers").click()
    rows = [each.split() for each in await page.locator(".numbers tbody tr").all_inner_texts()]
    assert rows[:3] == [["0", "11"], ["1", "1234"], ["2", "0"]]


async def test_a_job_runs_from_the_page_and_leaves_an_event(browser, butler, memory, caller, archive):
    name, runs = f"tidy_{uuid4().hex[:8]}", []

    async def tidy(caller: Caller) -> dict[str, int]:
        runs.append(caller.actor)
        return {"tidied": 3}

    async with (
        site_with_jobs(butler, memory, caller.tenant, make_job(name, tidy)) as (site, _),
        open_page(browser, java_script_enabled=False) as page,
    ):
        await page.goto(f"{site.url}/system")
        row = page.locator("#jobs ~ .table tbody tr")
        assert "has not run" in await row.inner_text()
        await page.get_by_role("button", name="Run now").click()
        assert page.url == f"{site.url}/system"
        assert "succeeded" in await row.inner_text()
    assert runs == ["scheduler"]
    [event] = await archive.events(caller.tenant)
    assert (event["event_type"], event["actor"]) == ("job_requested", "local")
    assert f'"job": "{name}"' in event["payload"]
    assert '"via": "dashboard"' in event["payload"]


async def test_a_job_that_is_submitted_twice_runs_once(butler, memory, caller, archive):
    name, runs = f"tidy_{uuid4().hex[:8]}", []

    async def tidy(_: Caller) -> dict[str, int]:
        runs.append(1)
        return {}

    async with site_with_jobs(butler, memory, caller.tenant, make_job(name, tidy)) as (site, _):
        key = str(uuid4())
        assert [(await site.post("/acts/run-job", name=name, key=key)).status_code for _ in range(2)] == [303, 303]
        assert (await site.post("/acts/run-job", name="nothing", key=str(uuid4()))).status_code == 404
    assert runs == [1]
    assert len(await archive.events(caller.tenant)) == 1


async def test_a_failing_job_is_told_on_the_overview_and_the_system_page(butler, memory, caller, tools):
    await tools.fact("blue")
    name = f"tidy_{uuid4().hex[:8]}"

    async def fail(_: Caller) -> dict[str, int]:
        raise Unavailable("the model is away")

    async with site_with_jobs(butler, memory, caller.tenant, make_job(name, fail)) as (site, _):
        assert (await site.post("/acts/run-job", name=name, key=str(uuid4()))).status_code == 503
        assert f"<h1>The job {name} fails.</h1>" in (await site.get("/")).text
        assert "failed: unavailable: the model is away" in (await site.get("/system")).text


async def test_a_long_job_goes_on_after_the_answer_and_runs_in_one_process(butler, caller):
    started, may_end = asyncio.Event(), asyncio.Event()

    async def wait(_: Caller) -> dict[str, int]:
        started.set()
        await may_end.wait()
        return {}

    job = make_job(f"wait_{uuid4().hex[:8]}", wait)
    scheduler = Scheduler(butler.database, butler.caller(caller.tenant), [job], Metrics())
    await scheduler.run_by_name(job.name, 0.05)
    async with asyncio.timeout(5):
        await started.wait()
    with pytest.raises(JobRunningElsewhere):
        await scheduler.run_by_name(job.name, 5)
    may_end.set()
    await scheduler.stop(5)
    [status] = await scheduler.job_statuses()
    assert status.status == "succeeded"
    with pytest.raises(Unavailable):
        await scheduler.run_by_name(job.name, 0.05)
    with pytest.raises(NotFound):
        await scheduler.run_by_name("nothing", 0.05)


async def test_an_index_that_misses_memories_is_told(butler, memory, caller, tools):
    await tools.fact("blue")
    measured = {"facts": {"decision": "kept", "method": "hnsw", "rows": 9000, "bytes": 5_000_000, "recall": 0.71}}

    async def measure(_: Caller) -> dict[str, object]:
        return {"indexes": measured}

    async with site_with_jobs(butler, memory, caller.tenant, make_job("index_upkeep", measure)) as (site, _):
        assert (await site.post("/acts/run-job", name="index_upkeep", key=str(uuid4()))).status_code == 303
        text = (await site.get("/system")).text
        assert "71 %" in text
        assert "5.0 MB" in text
        assert "less than 90 %" in text
        assert "The index of facts misses memories." in (await site.get("/")).text


async def test_a_butler_without_memory_says_which_line_turns_it_on(butler, memory, caller):
    server = build_tenant_server(butler, memory, caller.tenant)
    without = replace(butler, modules=[], config=replace(butler.config, butler=server.config))
    async with serve_http(server, LazyDashboard(without, server)) as address, httpx.AsyncClient() as client:
        response = await client.get(address.removesuffix("/mcp") + "/system")
        assert response.status_code == 200
        assert "[modules.memory]\nenabled = true" in response.text
        overview = await client.get(address.removesuffix("/mcp") + "/")
        assert overview.status_code == 404
        assert "this butler has no memory" in overview.text.lower()


async def test_a_page_without_its_database_is_503_and_tries_again_by_itself(butler, memory, caller):
    database = await db.connect(butler.location.dsn, 1)
    await database.close()
    module = MemoryModule()
    module._memory = replace(memory, database=database)
    server = build_tenant_server(butler, memory, caller.tenant)
    pages = LazyDashboard(replace(butler, database=database, modules=[module]), server)
    async with serve_http(server, pages) as address, httpx.AsyncClient() as client:
        for path in ("/", "/system", f"/facts/{uuid4()}"):
            response = await client.get(address.removesuffix("/mcp") + path)
            assert response.status_code == 503, path
            assert response.headers["refresh"] == "5"
            assert "This page tries again by itself." in response.text


async def test_the_backlog_of_another_tenant_is_not_counted(site, stranger, butler):
    await stranger("memory_store_episode", content="a secret", butler=butler.config.butler.name)
    assert "No episode waits." in (await site.get("/system")).text
