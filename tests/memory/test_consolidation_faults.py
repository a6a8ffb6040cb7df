"""Consolidation in several processes: concurrent, killed, stopped for a while, terminated."""

import asyncio
import json
import signal
from collections import Counter
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest

from butlers import app
from butlers.modules.memory.operations import consolidation
from database.butler_processes import connected, eventually, is_alive
from memory.scripted_model import (
    EVERY_SECOND,
    ScriptedModel,
    count_leases,
    episode_states,
    episode_statuses,
    fact_contents,
    fact_per_episode,
    memory_rows,
    runs_of,
    separate_butler,
    store_episodes,
    with_model,
    write_scripted_butler,
)

SHORT_LEASE = "[modules.memory.consolidation]\nlease_seconds = 1.0\n"
LOCK_WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
def consolidate(processes, home, caller, tmp_path):
    """Start `butlers memory consolidate` for the test's tenant in its own process."""

    def start(folder):
        words = ("memory", "consolidate", str(folder), "--tenant", caller.tenant, "--json")
        # The files of a killed process are deleted with the test.
        return processes.python("-m", "butlers.cli", *words, BUTLERS_HOME=str(home), TMPDIR=str(tmp_path))

    return start


def finish(worker):
    """Wait for a worker to end and return its answer."""
    assert worker.popen.wait(40) == 0, worker.err.read_text()
    return json.loads(worker.out.read_text())


async def wait_for_calls(program, times=1):
    """Wait until the program has been called that often."""

    async def has_calls():
        return len(program.calls()) >= times

    await eventually(has_calls, "the program to be asked")


async def take_over(memory, caller, archive):
    """Consolidate a tenant in this process once the lease of a dead worker has expired; return the model."""
    scripted = with_model(memory, ScriptedModel(fact_per_episode), lease_seconds=1.0)

    async def has_finished():
        await consolidation.consolidate(scripted, caller)
        return set(await episode_statuses(archive, caller.tenant)) == {"consolidated"}

    await eventually(has_finished, "the lease to run out")
    return scripted.spawner


async def test_two_processes_read_each_episode_once_and_each_group_in_order(
    memory, caller, archive, consolidate, tmp_path
):
    extra = "[modules.memory.consolidation]\nbatch_size = 2\n"
    folder, program = write_scripted_butler(tmp_path, memory.butler, seconds=0.3, extra=extra)
    groups = [await store_episodes(memory, caller, "One", "Two", "Three", "Four", butler=name) for name in ("a", "b")]
    answers = [await asyncio.to_thread(finish, worker) for worker in [consolidate(folder) for _ in range(2)]]
    assert Counter(program.episodes) == dict.fromkeys([*groups[0], *groups[1]], 1)
    for ids in groups:
        assert [each for each in program.episodes if each in ids] == ids
    assert sum(answer["facts_created"] for answer in answers) == await archive.count("facts", caller.tenant) == 8
    assert [answer["errors"] for answer in answers] == [[], []]
    assert {run["status"] for run in await runs_of(archive, caller.tenant)} == {"succeeded"}


async def test_row_13_the_episodes_of_a_killed_worker_are_done_once_by_another(
    memory, caller, archive, consolidate, tmp_path
):
    folder, program = write_scripted_butler(tmp_path, memory.butler, seconds=60, extra=SHORT_LEASE)
    ids = await store_episodes(memory, caller, "One", "Two")
    worker = consolidate(folder)
    await wait_for_calls(program)
    worker.end(signal.SIGKILL)
    assert await count_leases(archive, caller.tenant) == 2
    model = await take_over(memory, caller, archive)
    assert model.episodes_shown == ids
    assert await fact_contents(archive, caller.tenant) == sorted(f"seen in {each}" for each in ids)
    first, second = await runs_of(archive, caller.tenant)
    assert (first["status"], first["error"]) == ("lost", "the worker ended without a result")
    assert (second["status"], second["facts_created"]) == ("succeeded", 2)
    assert [row["attempts"] for row in await episode_states(archive, caller.tenant)] == [0, 0]

    async def is_gone():
        return not is_alive(program.calls()[0]["pid"])

    await eventually(is_gone, "what the killed worker had started to end")


async def test_row_13_a_worker_that_was_stopped_for_longer_than_its_lease_has_no_effect(
    memory, caller, archive, consolidate, tmp_path
):
    folder, program = write_scripted_butler(tmp_path, memory.butler, seconds=1, extra=SHORT_LEASE)
    await store_episodes(memory, caller, "One", "Two")
    worker = consolidate(folder)
    await wait_for_calls(program)
    worker.popen.send_signal(signal.SIGSTOP)
    await take_over(memory, caller, archive)
    before = await memory_rows(archive, caller.tenant)
    worker.popen.send_signal(signal.SIGCONT)
    late = await asyncio.to_thread(finish, worker)
    assert await memory_rows(archive, caller.tenant) == before
    assert late["errors"] == ["another worker has taken over the episodes"]
    assert (late["facts_created"], late["learned"]) == (0, [])
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["lost", "succeeded"]


async def test_row_18_a_worker_killed_before_it_has_committed_leaves_nothing_behind(
    memory, butler, caller, archive, consolidate, tmp_path
):
    folder, program = write_scripted_butler(tmp_path, memory.butler, seconds=1.5, extra=SHORT_LEASE)
    ids = await store_episodes(memory, caller, "One", "Two")
    worker = consolidate(folder)
    await wait_for_calls(program)
    async with connected(butler.location.admin_dsn) as another, another.transaction():
        # The last row it writes: the batch is applied and its episodes are marked by then.
        await another.execute("select from consolidation_runs where tenant_id = $1 for update", caller.tenant)

        async def is_waiting():
            return await archive.connection.fetchval(LOCK_WAITS)

        await eventually(is_waiting, "the worker to be about to end")
        worker.end(signal.SIGKILL)
    await take_over(memory, caller, archive)
    assert await fact_contents(archive, caller.tenant) == sorted(f"seen in {each}" for each in ids)
    assert await archive.count("facts", caller.tenant) == 2
    assert await archive.count("memory_links", caller.tenant) == 2
    assert await archive.count("memory_events", caller.tenant, "event_type = 'episode_consolidated'") == 2
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["lost", "succeeded"]


async def test_whoever_ends_a_run_by_hand_gets_the_lease_back(memory, caller, archive, consolidate, tmp_path):
    folder, program = write_scripted_butler(tmp_path, memory.butler, seconds=60)
    await store_episodes(memory, caller, "One")
    worker = consolidate(folder)
    await wait_for_calls(program)
    assert await asyncio.to_thread(worker.end, signal.SIGINT) == 130
    (row,) = await episode_states(archive, caller.tenant)
    assert (row["status"], row["attempts"], row["lease_token"], row["leased_until"]) == ("pending", 0, None, None)
    assert [run["status"] for run in await runs_of(archive, caller.tenant)] == ["released"]
    assert not is_alive(program.calls()[0]["pid"])


SCHEDULED = f'[modules.memory.schedule]\nconsolidate = "{EVERY_SECOND}"\n'


async def test_a_butler_told_to_stop_while_it_consolidates_leaves_no_lease_and_no_process(
    environment, engine, processes, home, tmp_path
):
    (tmp_path / "there").mkdir()
    async with separate_butler(tmp_path, environment, engine) as separate:
        folder, program = write_scripted_butler(
            tmp_path / "there", separate.memory.butler, seconds=60, extra=SCHEDULED
        )
        config = folder / "butler.toml"
        config.write_text(config.read_text().replace("[butler.limits]\n", "[butler.limits]\ngrace_seconds = 0.5\n"))
        caller = separate.new_caller()
        await store_episodes(separate.memory, caller, "One", "Two")
        butler = processes.butler(folder, home)
        await wait_for_calls(program)
        assert await count_leases(separate.archive, caller.tenant) == 2
        assert await asyncio.to_thread(butler.end, signal.SIGTERM, 20) == 0
        assert not is_alive(program.calls()[0]["pid"])
        rows = await episode_states(separate.archive, caller.tenant)
        assert [(row["status"], row["attempts"], row["lease_token"]) for row in rows] == [("pending", 0, None)] * 2
        (run,) = await runs_of(separate.archive, caller.tenant)
        assert (run["status"], run["error"]) == ("released", "it was cancelled")
        jobs = await separate.archive.rows("select status, error from job_runs where job = 'consolidate'")
        assert [(job["status"], job["error"]) for job in jobs] == [("lost", "the butler was stopped")]
        assert "Traceback" not in butler.err.read_text()


@asynccontextmanager
async def serve_jobs(folder, environment):
    """Run a butler in this process with its scheduled jobs."""
    async with app.open_butler(app.load_configuration(folder), environment) as butler, app.open_server(butler):
        yield butler


async def test_episodes_become_knowledge_with_nobody_calling_anything(
    environment, engine, home, tmp_path, monkeypatch
):
    monkeypatch.setenv("BUTLERS_HOME", str(home))
    folder, program = write_scripted_butler(tmp_path, f"by_itself_{uuid4().hex[:8]}", extra=SCHEDULED)
    async with serve_jobs(folder, environment) as butler, connected(butler.location.admin_dsn) as admin:
        memory, tenants = butler.modules[0].state, ("ada", "bob")
        for tenant in tenants:
            await store_episodes(memory, butler.caller(tenant), f"{tenant} likes blue")

        async def is_known():
            return await admin.fetchval("select count(*) = 2 from facts where source_episode_id is not null")

        await eventually(is_known, "the schedule to do its work")
        owners = await admin.fetch(
            "select f.tenant_id, f.scope, v.actor, v.request_id = r.id::text as of_the_run from facts f"
            " join memory_events v on v.entity_id = f.id join consolidation_runs r on r.tenant_id = f.tenant_id"
            " order by 1"
        )
        assert [tuple(row) for row in owners] == [
            (tenant, memory.butler, "consolidation", True) for tenant in tenants
        ]

        async def is_recorded():
            return await admin.fetchval("select result::text from job_runs where result ->> 'episodes' = '2'")

        await eventually(is_recorded, "the run to be recorded")
        result = json.loads(await is_recorded())
        assert (result["facts_created"], "learned" in result, "errors" in result) == (2, False, False)
        assert [
            sum(tenant in wait_for_calls["prompt"] for tenant in tenants) for wait_for_calls in program.calls()
        ] == [1, 1]
