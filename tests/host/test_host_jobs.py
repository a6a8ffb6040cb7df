"""Job records, and jobs of several butlers, killed butlers and stopping butlers."""

import asyncio
import json
import signal
import time
from datetime import timedelta
from uuid import uuid4

import asyncpg
import httpx2
import pytest

from butlers import app
from butlers.caller import Caller
from butlers.host import job_runs
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from database.butler_processes import is_alive

from .fake_clock import (
    EVERY_SECOND,
    HOUR,
    NOON,
    SECOND,
    FakeClock,
    FakeJob,
    fetch_runs,
    insert_run,
    run_scheduler,
    until,
)

YEARLY = "0 0 1 1 *"


@pytest.fixture(scope="module")
async def opened(environment, worker, tmp_path_factory):
    """The shared butler of this worker, without a scheduler."""
    place = tmp_path_factory.mktemp("record")
    (place / "butler.toml").write_text(
        f'[butler]\nname = "shared_{worker}"\nport = 0\n[modules.memory]\nenabled = true\n'
    )
    async with app.open_butler(app.load_configuration(place), environment) as butler:
        yield butler


@pytest.fixture
def database(opened):
    return opened.database


@pytest.fixture
async def record(opened):
    """An administrator's connection to the database."""
    connection = await asyncpg.connect(opened.location.admin_dsn)
    yield connection
    await connection.close()


@pytest.fixture
def caller():
    return Caller(tenant="default", butler="test", actor="scheduler")


async def test_runs_are_dropped_after_thirty_days_and_only_those_of_the_job(database, caller):
    work, other, clock = FakeJob(), FakeJob(), FakeClock(NOON + SECOND)
    for days in (400, 31, 29, 0):
        await insert_run(database, caller, work, NOON - timedelta(days=days), days_ago=days)
    await insert_run(database, caller, other, NOON, days_ago=31)
    async with run_scheduler(database, caller, work, clock=clock):
        await work.wait_started()
    moments = [row["scheduled_for"] for row in await fetch_runs(database, caller, work)]
    assert moments == [NOON - timedelta(days=29), NOON, NOON + SECOND]
    assert len(await fetch_runs(database, caller, other)) == 1


async def test_a_run_by_hand_hides_no_moment_that_was_missed(database, caller):
    work, clock = FakeJob("0 0 1 * *"), FakeClock()
    month = NOON.replace(day=1, hour=0)
    await insert_run(database, caller, work, month - timedelta(days=40), days_ago=40)
    await Scheduler(database, caller, [work.job], Metrics(), clock).run(work.job)
    async with run_scheduler(database, caller, work, clock=clock):
        await work.wait_started(2)
    by_hand, caught_up = (await fetch_runs(database, caller, work))[-2:]
    assert (by_hand["scheduled_for"], caught_up["scheduled_for"]) == (None, month)


async def job_statuses(database, *works):
    return await job_runs.job_statuses(database, {work.name: work.job for work in works}, NOON)


async def test_how_a_job_stands_is_told_from_its_latest_run_and_its_latest_success(database, caller):
    never, ran, failing = FakeJob("0 * * * *"), FakeJob("0 * * * *"), FakeJob("0 * * * *")
    await insert_run(database, caller, ran, NOON - HOUR)
    await insert_run(database, caller, failing, NOON - 2 * HOUR, days_ago=1)
    await insert_run(database, caller, failing, NOON - HOUR, "failed")
    statuses = await job_statuses(database, never, ran, failing)
    assert [each.next_run for each in statuses] == [NOON + HOUR] * 3
    assert [each.status for each in statuses] == [None, "succeeded", "failed"]
    assert [each.scheduled_for for each in statuses] == [None, NOON - HOUR, NOON - HOUR]
    assert statuses[0].succeeded_at is None
    assert statuses[1].succeeded_at == statuses[1].finished_at
    assert statuses[2].succeeded_at < statuses[2].finished_at


@pytest.mark.parametrize(
    ("cron", "ago", "overdue"),
    [
        ("0 * * * *", timedelta(hours=2), True),
        ("0 * * * *", timedelta(minutes=12), False),
        ("*/10 * * * *", timedelta(days=3), True),
        ("* * * * *", timedelta(days=3), True),
        ("* * * * *", timedelta(minutes=5), False),
    ],
)
def test_a_job_is_overdue_when_it_should_have_run_ten_minutes_ago_and_more(cron, ago, overdue):
    now = NOON + timedelta(minutes=15, seconds=30)
    status = job_runs.JobStatus("a job", cron, NOON + HOUR, started_at=now - ago, status="succeeded")
    assert status.is_overdue(now, 600) is overdue


def test_a_job_that_never_ran_is_not_overdue():
    assert not job_runs.JobStatus("a job", "* * * * *", NOON).is_overdue(NOON, 600)


async def test_the_latest_runs_are_found_quickly_among_many_and_tell_nothing_but_jobs(database, record, caller):
    prefix = f"many_{uuid4().hex}"
    await record.execute(
        "insert into job_runs (tenant_id, job, scheduled_for, started_at, finished_at, status, result)"
        " select 'tenant ' || n % 3, $1 || n % 8, at, at, at, case when n < 9 then 'failed' else 'succeeded' end,"
        " jsonb_build_object('seen', n)"
        " from (select n, now() - n * interval '1 minute' as at from generate_series(1, 20000) n) minutes",
        prefix,
    )
    try:
        started = time.monotonic()
        rows = [dict(row) for row in await database.fetch_across_tenants("select * from latest_job_runs()")]
        assert time.monotonic() - started < 1
        rows_of_test = sorted((row for row in rows if row["job"].startswith(prefix)), key=lambda row: row["job"])
        assert [row["job"] for row in rows_of_test] == [f"{prefix}{number}" for number in range(8)]
        for row in rows_of_test:
            assert row["status"] == "failed"
            assert row["started_at"] - row["succeeded_at"] == timedelta(minutes=8)
        assert set(rows_of_test[0]) == {
            "job",
            "scheduled_for",
            "started_at",
            "finished_at",
            "status",
            "attempt",
            "result",
            "error",
            "succeeded_at",
        }
        async with database.transaction(caller) as tx:
            assert await tx.fetchval("select count(*) from job_runs where job like $1 || '%'", prefix) == 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
            await database.fetch_across_tenants("select * from job_runs")
    finally:
        await record.execute("delete from job_runs where job like $1 || '%'", prefix)


async def fetch_rows(record, job):
    return await record.fetch(
        "select scheduled_for, attempt, status, error, started_at from job_runs where job = $1 order by started_at",
        job,
    )


@pytest.mark.slow
async def test_two_processes_run_each_moment_once_and_one_goes_on_when_the_other_is_killed(
    folder, process, environment, record
):
    place = folder(memory=False, probing=f'cron = "{EVERY_SECOND}"')
    await record.execute("delete from job_runs where job = 'probe_job'")
    butlers = [process(place), process(place)]
    for butler in butlers:
        butler.ready()

    async def more(than=0):
        rows = await fetch_rows(record, "probe_job")
        return len([row for row in rows if row["status"] == "succeeded"]) > than

    await until(lambda: more(1), 30)
    butlers[0].end(signal.SIGKILL)
    so_far = len(await fetch_rows(record, "probe_job"))
    await until(lambda: more(so_far + 1), 30)
    assert await asyncio.to_thread(butlers[1].end) == 0
    rows = await fetch_rows(record, "probe_job")
    moments = [row["scheduled_for"] for row in rows]
    assert len(moments) == len(set(moments))
    assert {row["status"] for row in rows} <= {"succeeded", "lost"}
    assert "Traceback" not in butlers[1].log.read_text()


def butler_with_slow_job(seconds, grace=20.0, cron=EVERY_SECOND):
    """Return the name and configuration of a job whose program writes its process id and sleeps."""
    name = f"slow_{uuid4().hex[:8]}"
    command = json.dumps(["sh", "-c", f"echo $$ >> pids; exec sleep {seconds}"])
    return name, (
        f"[butler.limits]\ngrace_seconds = {grace}\n"
        f'[butler.runtime]\ntype = "command"\ncommand = {command}\n'
        f'[[butler.schedule]]\nname = "{name}"\ncron = "{cron}"\nprompt = "Take your time"\n'
    )


async def wait_for_program(place):
    """Return the program's process id once it runs."""

    async def there():
        return (place / "pids").exists() and (place / "pids").read_text().strip()

    await until(there, 30)
    return int((place / "pids").read_text().split()[-1])


LEASES = "select count(*) from leases where expires_at > clock_timestamp()"


def start_call(address, seconds):
    """Start a call and return its task."""
    call = {"name": "probe_sleep", "arguments": {"seconds": seconds}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream"}

    async def answer():
        async with httpx2.AsyncClient(timeout=30) as client:
            return await client.post(address, json=message, headers=headers)

    return asyncio.create_task(answer())


@pytest.mark.slow
async def test_a_butler_told_to_stop_lets_its_job_end_and_begins_no_other_while_calls_end(
    folder, process, record, worker
):
    name, extra = butler_with_slow_job(1.5)
    place = folder(extra, memory=False)
    butler = process(place)
    call = start_call(butler.ready(), 4)
    await wait_for_program(place)
    butler.popen.send_signal(signal.SIGTERM)
    statuses = await record.fetchval("select now() + interval '0.5 seconds'")
    assert (await call).status_code == 200
    assert await asyncio.to_thread(butler.popen.wait, 20) == 0
    runs = await fetch_rows(record, f"shared_{worker}/{name}")
    assert {(run["status"], run["error"]) for run in runs} == {("succeeded", None)}
    assert await record.fetchval(LEASES) == 0
    assert "Traceback" not in butler.log.read_text()
    assert [run["scheduled_for"] for run in runs if run["started_at"] > statuses] == []


async def test_a_butler_told_to_stop_ends_a_job_that_takes_longer_than_it_may(folder, process, record, worker):
    name, extra = butler_with_slow_job(60, grace=0.5)
    await record.execute("delete from leases")
    place = folder(extra, memory=False, probe=False)
    butler = process(place, probe=False)
    pid = await wait_for_program(place)
    assert await record.fetchval(LEASES) == 2, "of the job, and of the session"
    started = time.monotonic()
    assert await asyncio.to_thread(butler.end) == 0
    assert time.monotonic() - started < 15
    assert not is_alive(pid)
    *_, run = await fetch_rows(record, f"shared_{worker}/{name}")
    assert (run["status"], run["error"]) == ("lost", "the butler was stopped")
    session = await record.fetchval("select status from sessions where trigger_source = $1", f"schedule:{name}")
    assert session == "cancelled"
    assert await record.fetchval(LEASES) == 0
    assert "Traceback" not in butler.log.read_text()


async def test_a_second_signal_does_not_wait_for_a_job(folder, process, record, worker):
    name, extra = butler_with_slow_job(60)
    place = folder(extra, memory=False, probe=False)
    butler = process(place, probe=False)
    pid = await wait_for_program(place)
    butler.popen.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert butler.popen.poll() is None
    butler.popen.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(butler.popen.wait, 8) == 0
    assert not is_alive(pid)
    *_, run = await fetch_rows(record, f"shared_{worker}/{name}")
    assert (run["status"], run["error"]) == ("lost", "the butler was stopped")


async def test_a_run_whose_butler_was_killed_is_lost_and_made_again(folder, process, running, record, worker):
    name, extra = butler_with_slow_job(60, cron=YEARLY)
    place, job = folder(extra, memory=False, probe=False), f"shared_{worker}/{name}"
    await record.execute(
        "insert into job_runs (tenant_id, job, scheduled_for, status, finished_at)"
        " values ('default', $1, now() - interval '2 years', 'succeeded', now())",
        job,
    )
    butler = process(place, probe=False)
    pid = await wait_for_program(place)
    butler.end(signal.SIGKILL)
    assert [row["status"] for row in await fetch_rows(record, job)] == ["succeeded", "running"]

    async def has_become(status):
        return (await fetch_rows(record, job))[-1]["status"] == status

    config = place / "butler.toml"
    config.write_text(config.read_text().replace("exec sleep 60", "true"))
    async with running(place):
        await until(lambda: has_become("lost"))
    *_, run = await fetch_rows(record, job)
    assert (run["attempt"], run["error"]) == (1, "the process that ran it ended")
    await record.execute("update job_runs set finished_at = now() - interval '31 seconds' where job = $1", job)
    async with running(place):
        await until(lambda: has_become("succeeded"))
    *_, first, second = await fetch_rows(record, job)
    assert (second["attempt"], second["scheduled_for"]) == (2, first["scheduled_for"])

    async def gone():
        return not is_alive(pid)

    await until(gone)
