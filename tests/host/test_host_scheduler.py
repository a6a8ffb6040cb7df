"""The scheduler on the real database, with a fake clock."""

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from butlers import app, cron
from butlers.caller import Caller
from butlers.errors import Conflict
from butlers.host.leases import hold_lease

from .fake_clock import (
    EVERY_SECOND,
    HOUR,
    MINUTE,
    NOON,
    SECOND,
    FakeClock,
    FakeJob,
    fetch_runs,
    insert_run,
    run_scheduler,
    set_finished_ago,
    wait_for_runs,
)

TAKEN = Conflict("it is taken", hint="Wait.")
YEAR = timedelta(days=365)


@pytest.fixture(scope="module")
async def opened(environment, worker, tmp_path_factory):
    """The shared butler of this worker, without a scheduler."""
    place = tmp_path_factory.mktemp("clock")
    (place / "butler.toml").write_text(
        f'[butler]\nname = "shared_{worker}"\nport = 0\n[modules.memory]\nenabled = true\n'
    )
    async with app.open_butler(app.load_configuration(place), environment) as butler:
        yield butler


@pytest.fixture
def database(opened):
    return opened.database


@pytest.fixture
def caller():
    return Caller(tenant="default", butler="test", actor="scheduler")


@pytest.mark.parametrize(
    ("expression", "now", "moment"),
    [
        ("0 * * * *", NOON, NOON),
        ("0 * * * *", NOON + timedelta(microseconds=1), NOON),
        ("0 * * * *", NOON - timedelta(microseconds=1), NOON - HOUR),
        ("0 * * * *", NOON + timedelta(minutes=59, seconds=59.9), NOON),
        ("30 8 * * *", NOON, NOON.replace(hour=8, minute=30)),
        ("0 8 * * 1", NOON - 5 * HOUR, NOON - timedelta(days=7, hours=4)),
        ("0 0 29 2 *", NOON, datetime(2024, 2, 29, tzinfo=UTC)),
        (EVERY_SECOND, NOON + timedelta(seconds=7.5), NOON + 7 * SECOND),
    ],
)
def test_a_moment_is_due_from_the_second_it_names(expression, now, moment):
    assert cron.last_due(expression, now) == moment


def test_a_cron_expression_means_the_clock_of_the_place():
    there = timezone(timedelta(hours=5, minutes=30))
    assert cron.last_due("0 8 * * *", NOON.astimezone(there)) == datetime(2026, 5, 4, 8, tzinfo=there)


def field(first, last, *words):
    """A strategy for one field of a cron expression."""
    one = st.integers(first, last).map(str) | st.sampled_from(["*", *words])
    span = st.tuples(st.integers(first, last), st.integers(first, last)).map(lambda ends: f"{min(ends)}-{max(ends)}")
    steps = st.tuples(st.just("*") | span, st.integers(1, last + 1)).map(lambda parts: f"{parts[0]}/{parts[1]}")
    return st.lists(one | span | steps, min_size=1, max_size=2).map(",".join)


FIVE = (field(0, 59), field(0, 23), field(1, 31, "L", "LW"), field(1, 12, "FEB"), field(0, 7, "SUN", "1#5", "5L"))
EXPRESSIONS = (st.tuples(*FIVE) | st.tuples(field(0, 59), *FIVE)).map(" ".join)
OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(EXPRESSIONS, st.datetimes(datetime(2000, 1, 1), datetime(2080, 1, 1), timezones=OFFSETS))  # noqa: DTZ001
def test_what_is_due_is_over_and_what_is_upcoming_is_not(expression, now):
    try:
        cron.validate_cron(expression)
    except ValueError:
        return
    before, after = cron.last_due(expression, now), cron.next_due(expression, now)
    assert before <= now < after
    assert cron.last_due(expression, after) == after
    assert cron.next_due(expression, before) == after


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text(max_size=30) | st.text("0123456789*/-,#LW MONFEB", max_size=30))
def test_what_is_no_cron_expression_is_refused_and_nothing_else_breaks(text):
    try:
        cron.validate_cron(text)
    except ValueError:
        return
    assert cron.last_due(text, NOON) <= NOON < cron.next_due(text, NOON)


@pytest.mark.parametrize("text", ["", "* * * *", "* * * * * * *", "60 * * * *", "0 0 30 2 *", "0 0 * * 8", "@daily"])
def test_a_refusal_says_how_a_cron_expression_is_written(text):
    with pytest.raises(ValueError, match="fields are allowed: minute, hour, day of month, month, day of week"):
        cron.validate_cron(text)


async def test_a_job_runs_when_its_moment_has_come_and_not_before(database, caller):
    work, clock = FakeJob(), FakeClock()
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock):
        await clock.wait_handled()
        assert work.runs == 0
        clock.now += 2 * SECOND
        _, row = await wait_for_runs(database, caller, work, 2)
        await clock.wait_handled()
    assert (row["scheduled_for"], row["status"], row["attempt"]) == (NOON + 2 * SECOND, "succeeded", 1)
    assert row["result"] == {"runs": 1, "tenant": "default"}
    assert row["finished_at"] is not None
    assert work.runs == 1


async def test_a_job_that_never_ran_waits_for_its_first_moment(database, caller):
    work, clock = FakeJob(), FakeClock()
    async with run_scheduler(database, caller, work, clock=clock):
        await clock.wait_handled()
        assert await fetch_runs(database, caller, work) == []
        clock.now += SECOND
        (row,) = await wait_for_runs(database, caller, work, 1)
    assert row["scheduled_for"] == NOON + SECOND


async def test_runs_missed_while_nothing_ran_are_caught_up_once(database, caller):
    work, clock = FakeJob("0 * * * *"), FakeClock(NOON + 5 * HOUR + 20 * MINUTE)
    await insert_run(database, caller, work, NOON)
    for _ in range(2):
        async with run_scheduler(database, caller, work, clock=clock):
            rows = await wait_for_runs(database, caller, work, 2)
            await asyncio.sleep(0.1)
    assert [row["scheduled_for"] for row in rows] == [NOON, NOON + 5 * HOUR]
    assert work.runs == 1


@pytest.mark.parametrize(
    ("error", "message"), [(TAKEN, "conflict: it is taken. Wait."), (ValueError("a secret"), "ValueError")]
)
async def test_a_failing_job_is_recorded_and_the_next_moment_starts_anew(database, caller, error, message, caplog):
    work, clock = FakeJob(fails=error), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock) as watched:
        await wait_for_runs(database, caller, work, 2)
        failing = await watched.metrics_page()
        work.fails = None
        clock.now += SECOND
        _, *rows = await wait_for_runs(database, caller, work, 3)
        fixed = await watched.metrics_page()
    assert [(row["status"], row["error"], row["attempt"]) for row in rows] == [
        ("failed", message, 1),
        ("succeeded", None, 1),
    ]
    assert f'butlers_job_failing{{job="{work.name}"}} 1.0' in failing
    assert f'butlers_job_failing{{job="{work.name}"}} 0.0' in fixed
    assert f'butlers_job_runs_total{{job="{work.name}",outcome="failed"}} 1.0' in fixed
    assert f'butlers_job_runs_total{{job="{work.name}",outcome="succeeded"}} 1.0' in fixed
    assert "a secret" not in failing + fixed
    [logged] = [record for record in caplog.records if getattr(record, "outcome", "") == "failed"]
    assert logged.error == message
    assert bool(logged.exc_info and logged.exc_info[1]) == (error is not TAKEN), "a fault needs no traceback"


async def test_a_moment_that_fails_is_tried_five_times_after_longer_and_longer_pauses(database, caller):
    work, clock = FakeJob(fails=TAKEN), FakeClock()
    async with run_scheduler(database, caller, work, clock=clock):
        await clock.wait_handled()
        clock.now += SECOND
        for attempt, pause in enumerate((30, 60, 120, 240), start=1):
            await wait_for_runs(database, caller, work, attempt)
            await set_finished_ago(database, caller, work, pause - 15)
            await clock.wait_handled()
            assert work.runs == attempt, "not before its time"
            await set_finished_ago(database, caller, work, pause + 1)
        await wait_for_runs(database, caller, work, 5)
        await set_finished_ago(database, caller, work, 7200)
        await clock.wait_handled()
        assert work.runs == 5
        clock.now += SECOND
        rows = await wait_for_runs(database, caller, work, 6)
    first, second = NOON + SECOND, NOON + 2 * SECOND
    tried = [(row["scheduled_for"], row["attempt"], row["status"]) for row in rows]
    assert tried == [*((first, attempt, "failed") for attempt in range(1, 6)), (second, 1, "failed")]


async def test_a_retry_that_succeeds_settles_the_moment(database, caller):
    work, clock = FakeJob(fails=TAKEN), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock) as watched:
        await wait_for_runs(database, caller, work, 2)
        assert f'butlers_job_failing{{job="{work.name}"}} 1.0' in await watched.metrics_page()
        work.fails = None
        await set_finished_ago(database, caller, work, 31)
        await wait_for_runs(database, caller, work, 3)
        await set_finished_ago(database, caller, work, 7200)
        await clock.wait_handled()
        page = await watched.metrics_page()
    _, *rows = await fetch_runs(database, caller, work)
    moment = NOON + SECOND
    assert [(row["scheduled_for"], row["attempt"], row["status"]) for row in rows] == [
        (moment, 1, "failed"),
        (moment, 2, "succeeded"),
    ]
    assert f'butlers_job_failing{{job="{work.name}"}} 0.0' in page
    assert f'butlers_job_last_success_timestamp_seconds{{job="{work.name}"}}' in page


async def test_a_job_is_still_failing_while_it_is_tried_again(database, caller):
    work, clock = FakeJob(fails=TAKEN), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock, stop=0) as watched:
        await wait_for_runs(database, caller, work, 2)
        work.seconds = 60
        await set_finished_ago(database, caller, work, 31)
        await work.wait_started(2)
        assert f'butlers_job_failing{{job="{work.name}"}} 1.0' in await watched.metrics_page()


async def test_what_failed_is_tried_again_after_a_restart_even_if_it_never_succeeded(database, caller):
    work, clock = FakeJob("0 * * * *", fails=TAKEN), FakeClock(NOON + MINUTE)
    await insert_run(database, caller, work, NOON, status="failed")
    work.fails = None
    await set_finished_ago(database, caller, work, 31)
    async with run_scheduler(database, caller, work, clock=clock):
        _, row = await wait_for_runs(database, caller, work, 2)
    assert (row["scheduled_for"], row["attempt"], row["status"]) == (NOON, 2, "succeeded")


@pytest.mark.parametrize("before", [True, False], ids=["ran before", "first run"])
async def test_a_run_whose_process_is_gone_is_given_up_and_tried_again(database, caller, before):
    work, clock = FakeJob("0 * * * *"), FakeClock(NOON + MINUTE)
    if before:
        await insert_run(database, caller, work, NOON - HOUR)
    await insert_run(database, caller, work, NOON, status="running")
    async with run_scheduler(database, caller, work, clock=clock):
        (lost,) = (await wait_for_runs(database, caller, work, 1 + before))[before:]
    assert (lost["status"], lost["error"]) == ("lost", "the process that ran it ended")
    await set_finished_ago(database, caller, work, 31)
    async with run_scheduler(database, caller, work, clock=clock):
        again = (await wait_for_runs(database, caller, work, 2 + before))[-1]
    assert (again["scheduled_for"], again["attempt"], again["status"]) == (NOON, 2, "succeeded")


async def test_stopping_waits_for_a_job_that_runs(database, caller):
    work = FakeJob(seconds=0.4)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=FakeClock(NOON + SECOND)):
        await work.wait_started()
    _, row = await fetch_runs(database, caller, work)
    assert row["status"] == "succeeded"


async def test_a_job_that_had_to_be_cancelled_is_marked_and_leaves_no_lease(database, caller, opened):
    work = FakeJob(seconds=60)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=FakeClock(NOON + SECOND), stop=0.1):
        await work.wait_started()
        async with hold_lease(database, f"butlers job {work.name}") as free:
            assert not free
    _, row = await fetch_runs(database, caller, work)
    assert (row["status"], row["error"]) == ("lost", "the butler was stopped")
    async with hold_lease(database, f"butlers job {work.name}") as free:
        assert free


async def test_two_schedulers_run_each_moment_once(database, caller):
    work, clock = FakeJob(seconds=0.02), FakeClock()
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock), run_scheduler(database, caller, work, clock=clock):
        for number in range(1, 6):
            clock.now += SECOND
            await work.wait_started(number)
            await clock.wait_handled(2)
    moments = [row["scheduled_for"] for row in await fetch_runs(database, caller, work)]
    assert moments == [NOON + number * SECOND for number in range(6)]
    assert work.runs == 5


async def test_butlers_that_belong_to_different_tenants_run_a_shared_job_once(database, caller):
    work, clock = FakeJob(), FakeClock()
    other = Caller(tenant="elsewhere", butler="other", actor="scheduler")
    async with run_scheduler(database, caller, work, clock=clock), run_scheduler(database, other, work, clock=clock):
        await clock.wait_handled(2)
        clock.now += SECOND
        await work.wait_started()
        await clock.wait_handled(2)
        assert work.runs == 1


async def test_a_job_of_each_butler_is_run_by_each(database, caller):
    work, clock = FakeJob(shared=False), FakeClock()
    other = Caller(tenant="default", butler="other", actor="scheduler")
    async with run_scheduler(database, caller, work, clock=clock), run_scheduler(database, other, work, clock=clock):
        await clock.wait_handled(2)
        clock.now += SECOND
        await work.wait_started(2)
        await clock.wait_handled(2)
    assert work.runs == 2


async def test_a_long_run_does_not_delay_the_moment_after_it(database, caller):
    work = FakeJob(seconds=0.7)
    started = time.monotonic()
    async with run_scheduler(database, caller, work, clock=cron.local_now):
        await wait_for_runs(database, caller, work, 2)
    assert time.monotonic() - started < 8


async def test_row_22_a_clock_a_year_ahead_runs_each_job_once_and_when_it_is_mended_all_goes_on(database, caller):
    works, clock = (FakeJob(), FakeJob()), FakeClock(NOON + SECOND)
    for work in works:
        await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, *works, clock=clock):
        for work in works:
            await work.wait_started(1)
        clock.now += YEAR
        await clock.wait_handled(2)
        assert [work.runs for work in works] == [2, 2]
        clock.now += SECOND - YEAR
        await clock.wait_handled(2)
        clock.now += SECOND
        for work in works:
            await work.wait_started(3)


async def test_row_22_a_clock_that_was_a_year_ahead_is_no_hindrance_after_a_restart(database, caller):
    work, clock = FakeJob(), FakeClock()
    await insert_run(database, caller, work, NOON)
    await insert_run(database, caller, work, NOON + YEAR)
    async with run_scheduler(database, caller, work, clock=clock):
        await clock.wait_handled()
        clock.now += SECOND
        await work.wait_started()


async def test_row_22_a_clock_that_is_put_back_runs_nothing_twice(database, caller):
    work, clock = FakeJob(), FakeClock()
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(database, caller, work, clock=clock):
        for number in (1, 2, 3):
            clock.now += SECOND
            await work.wait_started(number)
        for _ in range(3):
            clock.now -= SECOND
            await clock.wait_handled()
        for _ in range(3):
            clock.now += SECOND
            await clock.wait_handled()
        assert work.runs == 3
        clock.now += SECOND
        await work.wait_started(4)
    moments = [row["scheduled_for"] for row in await fetch_runs(database, caller, work)]
    assert moments == [NOON + number * SECOND for number in range(5)]


@pytest.fixture
def in_berlin(monkeypatch):
    """This machine stands where clocks are put forward in March and back in October."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


MIDNIGHTS = {"forward": datetime(2026, 3, 29, tzinfo=UTC), "back": datetime(2026, 10, 25, tzinfo=UTC)}


async def nightly(database, caller, work, midnight):
    """The hours around a change of daylight saving time, checked every twenty minutes."""
    start = midnight - HOUR
    await insert_run(database, caller, work, cron.last_due(work.job.cron, start.astimezone(cron.LOCAL_TIMEZONE)))
    for step in range(1, 13):
        clock = FakeClock((start + 20 * step * MINUTE).astimezone(cron.LOCAL_TIMEZONE))
        async with run_scheduler(database, caller, work, clock=clock):
            await clock.wait_handled(0.5)
    return [row["scheduled_for"] for row in await fetch_runs(database, caller, work)][1:]


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("change", MIDNIGHTS)
async def test_a_night_on_which_the_clocks_change_is_as_long_as_any_other(database, caller, change):
    work = FakeJob("0 * * * *")
    moments = await nightly(database, caller, work, MIDNIGHTS[change])
    assert moments == [MIDNIGHTS[change] + hour * HOUR for hour in range(4)]
    assert work.runs == 4


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("change", MIDNIGHTS)
@pytest.mark.parametrize(("expression", "times"), [("30 2 * * *", 1), ("0 3 * * *", 1), ("0 8 * * *", 0)])
async def test_a_change_of_the_clocks_gives_no_job_a_run_too_many(database, caller, expression, times, change):
    work = FakeJob(expression)
    assert len(await nightly(database, caller, work, MIDNIGHTS[change])) == work.runs == times


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("change", MIDNIGHTS)
def test_eight_o_clock_is_eight_o_clock_before_and_after_a_change(change):
    midnight = MIDNIGHTS[change]
    before, after = ((midnight + hours * HOUR).astimezone(cron.LOCAL_TIMEZONE) for hours in (-4, 4))
    times = [
        cron.last_due("0 8 * * *", before),
        cron.next_due("0 8 * * *", before),
        cron.last_due("0 8 * * *", after),
    ]
    assert [f"{moment.astimezone():%d. %H:%M}" for moment in times] == [
        f"{midnight.day - 1}. 08:00",
        f"{midnight.day}. 08:00",
        f"{midnight.day - 1}. 08:00",
    ]


async def test_a_record_that_can_not_be_read_for_a_while_ends_no_watch(database, caller, opened):
    work, clock = FakeJob(), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    async with opened.location.owner_connection() as owner:
        grant = f'grant select on job_runs to "{opened.location.app}"'
        await owner.execute(grant.replace("grant", "revoke").replace(" to ", " from "))
        try:
            async with run_scheduler(database, caller, work, clock=clock):
                await asyncio.sleep(0.3)
                await owner.execute(grant)
                await work.wait_started()
        finally:
            await owner.execute(grant)


@pytest.fixture
async def cut_database(opened, running, folder, wire, by_wire):
    """A database whose connection can be cut and restored."""
    async with running(folder(probe=False), env=by_wire) as server:
        yield server.database


async def test_moments_missed_while_the_database_was_away_are_caught_up_once(database, caller, wire, cut_database):
    work, clock = FakeJob(), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    async with run_scheduler(cut_database, caller, work, clock=clock):
        await wait_for_runs(database, caller, work, 2)
        await wire.cut()
        for _ in range(2):
            clock.now += HOUR
            await clock.wait_handled()
        await wire.join()
        _, *rows = await wait_for_runs(database, caller, work, 3)
        await clock.wait_handled()
    assert [row["scheduled_for"] for row in rows] == [NOON + SECOND, NOON + 2 * HOUR + SECOND]
    assert [(row["status"], row["attempt"]) for row in rows] == [("succeeded", 1)] * 2
    assert work.runs == 2


async def test_a_butler_that_starts_while_the_database_is_away_runs_what_is_due_later(
    database, caller, wire, cut_database
):
    work, clock = FakeJob(), FakeClock(NOON + SECOND)
    await insert_run(database, caller, work, NOON)
    await wire.cut()
    async with run_scheduler(cut_database, caller, work, clock=clock):
        await clock.wait_handled()
        await wire.join()
        _, row = await wait_for_runs(database, caller, work, 2)
    assert (row["scheduled_for"], row["status"]) == (NOON + SECOND, "succeeded")


async def test_what_nobody_can_tell_about_jobs_is_left_out_of_the_metrics(caller, wire, cut_database):
    work = FakeJob()
    await insert_run(cut_database, caller, work, NOON)
    async with run_scheduler(cut_database, caller, work, clock=FakeClock()) as watched:
        assert f'butlers_job_failing{{job="{work.name}"}} 0.0' in await watched.metrics_page()
        await wire.cut()
        assert f'butlers_job_failing{{job="{work.name}"}}' not in await watched.metrics_page()
