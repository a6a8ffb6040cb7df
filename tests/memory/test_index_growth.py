"""Index upkeep that follows growth: a job that is due before its time, and the pause after it."""

import asyncio
import time
from dataclasses import replace

import pytest

from butlers.caller import Caller
from butlers.cron import local_now
from butlers.errors import Conflict
from butlers.host import early_runs
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory.operations import index_upkeep
from database.butler_processes import eventually
from host.fake_clock import FakeJob, fetch_runs, run_scheduler, wait_for_runs
from memory.scripted_model import separate_butler
from memory.test_index_upkeep import indexes, insert_vectors, uses_graph

NEVER = "0 0 29 2 *"
ROWS = 10_000


@pytest.fixture(scope="module")
async def growing(environment, engine, tmp_path_factory):
    """A butler with its own database, without a scheduler."""
    async with separate_butler(tmp_path_factory.mktemp("growth"), environment, engine) as opened:
        yield opened


class CountedCheck:
    """A check that counts how often it is asked."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = 0

    async def __call__(self, caller):
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def was_asked_often(self):
        return self.asked >= 3


@pytest.mark.parametrize("fails", [None, Conflict("it is taken", hint="Wait.")], ids=["succeeds", "fails"])
async def test_an_early_run_is_followed_by_a_pause_whether_it_fails_or_not(growing, fails):
    database, caller = growing.butler.database, growing.butler.caller()
    check = CountedCheck(True)
    work = FakeJob(NEVER, fails=fails, is_due_early=check)
    async with run_scheduler(database, caller, work, clock=local_now, check_seconds=0.1):
        await wait_for_runs(database, caller, work, 1)
        await asyncio.sleep(0.6)
    (run,) = await fetch_runs(database, caller, work)
    assert (run["scheduled_for"], run["status"]) == (None, "failed" if fails else "succeeded")
    assert (work.runs, check.asked) == (1, 1), "the ticks of the pause ask nothing"


@pytest.mark.parametrize("answer", [False, Conflict("not now", hint="Wait.")], ids=["not due", "can't be checked"])
async def test_a_check_that_finds_nothing_or_fails_runs_nothing_and_is_asked_again(growing, answer):
    check = CountedCheck(answer)
    work = FakeJob(NEVER, is_due_early=check)
    database, caller = growing.butler.database, growing.butler.caller()
    async with run_scheduler(database, caller, work, clock=local_now, check_seconds=0.1):
        await eventually(check.was_asked_often, "three checks")
    assert work.runs == 0


async def test_the_pause_doubles_while_the_job_stays_due_and_starts_anew_when_it_is_not():
    now = 1000.0
    check = CountedCheck(True)
    early = early_runs.EarlyRuns(check, Caller(tenant="default", butler="test"), clock=lambda: now)
    for pause in (600, 1200, 2400):
        assert await early.is_due()
        now += pause - 1
        assert not await early.is_due()
        now += 1
    check.answer = False
    assert not await early.is_due()
    now += early_runs.CHECK_SECONDS
    check.answer = True
    assert await early.is_due()
    now += 600
    assert await early.is_due(), "the first pause again"


async def test_thousands_of_memories_that_arrive_are_soon_searched_by_a_graph(growing):
    """The scheduler checks as often as in a butler, and the job's time never comes."""
    module = growing.butler.modules[0]
    (job,) = [replace(each, cron=NEVER) for each in module.jobs() if each.name == "index_upkeep"]
    scheduler = Scheduler(growing.butler.database, growing.butler.caller(), [job], Metrics())
    caller = growing.butler.caller("grown")
    assert not await index_upkeep.has_outgrown(growing.memory, caller)
    scheduler.start()
    try:
        await asyncio.sleep(1)
        await insert_vectors(growing, "grown", "facts", ROWS)
        arrived = time.monotonic()
        while not await uses_graph(growing, caller):
            assert time.monotonic() - arrived < 60
            await asyncio.sleep(0.5)
    finally:
        await scheduler.stop(30)
    assert (await indexes(growing))["facts_embedding"] == ("hnsw", True)
    assert not await index_upkeep.has_outgrown(growing.memory, caller)
    (run,) = await growing.archive.rows(
        "select scheduled_for, status, result->'rebuilt' as rebuilt from job_runs where job = 'index_upkeep'"
    )
    assert (run["scheduled_for"], run["status"], run["rebuilt"]) == (None, "succeeded", '["facts"]')
