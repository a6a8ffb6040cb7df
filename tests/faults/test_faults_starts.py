"""Concurrent starts, kills, a missing database, and shutdown (rows 8, 12, 20)."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta

import pytest
from fastmcp import Client

from butlers import app, db
from butlers.contract import Job
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from database.butler_processes import Served, configured, eventually, new_name, servers, write_folder
from probe import MODULES


async def is_serving(address: str) -> bool:
    async with Client(address) as client:
        return isinstance(await client.list_tools(), list)


@pytest.mark.slow
async def test_row_12_butlers_that_start_at_the_same_moment_on_a_new_home_serve_and_leave_no_server_behind(
    own_home, tmp_path, processes
):
    """Two butlers of one folder and one of another; one is killed and restarted."""
    folder, other_folder = write_folder(tmp_path, probe=False), write_folder(tmp_path, probe=False)
    one, twin, other = [processes.butler(each, own_home, "--port", "0") for each in (folder, folder, other_folder)]
    for butler in (one, twin, other):
        assert await is_serving(butler.ready())
    assert servers(own_home) == 1

    one.end(signal.SIGKILL)
    again = processes.butler(folder, own_home, "--port", "0")
    for butler in (again, twin, other):
        assert await is_serving(butler.ready())

    assert twin.end(signal.SIGTERM) == 0
    assert other.end(signal.SIGTERM) == 0
    assert servers(own_home) == 1
    assert await is_serving(again.ready())
    assert again.end(signal.SIGINT) == 0
    assert servers(own_home) == 0


async def test_row_12_a_call_under_way_finishes_before_the_server_is_stopped(own_home, tmp_path, processes):
    name = new_name()
    butler = processes.butler(write_folder(tmp_path, name=name), own_home, probe=True)
    served = Served(butler, butler.ready(), f"postgresql://postgres@/butler_{name}?host={own_home}/postgres/data")
    call = asyncio.create_task(served.call("probe_write", text="kept", seconds=2))
    await eventually(served.is_writing, "the call to be under way")
    butler.popen.send_signal(signal.SIGTERM)
    assert (await call).structured_content == {"rows": 1}
    assert await asyncio.to_thread(butler.end) == 0
    assert servers(own_home) == 0


@pytest.mark.slow
async def test_row_07_an_embedded_server_that_dies_is_started_again_under_a_running_butler(
    own_home, tmp_path, processes
):
    name = new_name()
    butler = processes.butler(write_folder(tmp_path, name=name), own_home, probe=True)
    served = Served(butler, butler.ready(), f"postgresql://postgres@/butler_{name}?host={own_home}/postgres/data")
    assert (await served.call("probe_write", text="before")).structured_content == {"rows": 1}
    postmaster = int((own_home / "postgres/data/postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGKILL)

    async def works() -> bool:
        answer = await served.call("probe_write", text="after")
        return not answer.is_error

    await eventually(works, "calls to work again", seconds=20)
    assert (await served.call("probe_write", text="more")).structured_content == {"rows": 3}
    assert await asyncio.to_thread(butler.end) == 0
    assert servers(own_home) == 0


async def test_row_12_a_sigterm_during_the_start_leaves_no_server_behind(own_home, tmp_path, processes):
    butler = processes.butler(write_folder(tmp_path, probe=False), own_home, "--port", "0")

    async def database_is_up() -> bool:
        return servers(own_home) == 1

    await eventually(database_is_up, "the embedded server to be up", seconds=20)
    assert await asyncio.to_thread(butler.end, signal.SIGTERM) == 0
    assert servers(own_home) == 0


@pytest.mark.parametrize(
    "url",
    ["postgresql://somebody:hidden@127.0.0.1:1/db", "postgresql://somebody:hidden@/db?host=/nowhere"],
)
def test_row_08_without_its_database_a_butler_ends_with_one_clear_line(own_home, tmp_path, processes, url):
    butler = processes.butler(write_folder(tmp_path, probe=False), own_home, BUTLERS_DATABASE_URL=url)
    assert butler.popen.wait(20) == 1
    (line,) = butler.err.read_text().splitlines()
    assert line.startswith(f"butlers: PostgreSQL can't be reached at {url.replace(':hidden', '')}: ")
    assert "Is the server running" in line
    assert butler.out.read_text() == ""
    assert list(own_home.iterdir()) == []


@pytest.fixture(scope="module")
async def pair(environment, tmp_path_factory):
    """A butler and a second pool on its database."""
    config = configured(tmp_path_factory.mktemp("pair"), name=new_name())
    async with app.open_butler(config, environment, MODULES) as butler:
        other = await db.connect(butler.location.dsn, pool_size=4)
        yield butler, other
        await other.close()


class Runs:
    """A job on two schedulers that counts its runs."""

    def __init__(self, pair, name: str, clock=lambda: datetime.now(UTC)) -> None:
        butler, other = pair
        self.database, self.caller = butler.database, butler.caller(actor="scheduler")
        self.count = 0
        self.job = Job(name, "* * * * *", self._run)
        self.schedulers = [
            Scheduler(database, self.caller, [self.job], Metrics(), clock) for database in (self.database, other)
        ]

    async def _run(self, _) -> dict[str, int]:
        self.count += 1
        await asyncio.sleep(0.05)
        return {"count": self.count}

    async def recorded(self) -> list[tuple[datetime, str]]:
        async with self.database.transaction(self.caller) as tx:
            rows = await tx.fetch(
                "select scheduled_for, status from job_runs where job = $1 order by started_at", self.job.name
            )
        return [(row["scheduled_for"], row["status"]) for row in rows]


NOON = datetime(2026, 7, 28, 12, 0, tzinfo=UTC)


async def test_row_20_two_schedulers_run_a_job_once_for_each_moment(pair):
    runs = Runs(pair, "by hand")
    moments = [NOON + timedelta(minutes=minute) for minute in range(5)]
    for moment in moments:
        before = runs.count
        await asyncio.gather(*(each._tick(runs.job.name, moment) for each in runs.schedulers for _ in range(3)))
        assert runs.count == before + 1
    assert runs.count == len(moments)
    assert await runs.recorded() == [(moment, "succeeded") for moment in moments]
    assert await runs.schedulers[1]._tick(runs.job.name, moments[0]) == 0
    assert runs.count == len(moments), "a job does not run twice for one due time"


async def test_row_20_two_schedulers_that_watch_the_clock_run_a_job_once(pair):
    start = asyncio.get_running_loop().time()

    def clock() -> datetime:
        """A clock that reaches noon after 0.3 seconds."""
        return NOON + timedelta(seconds=asyncio.get_running_loop().time() - start - 0.3)

    runs = Runs(pair, "scheduled", clock)
    for scheduler in runs.schedulers:
        scheduler.start()
    await asyncio.sleep(1)
    for scheduler in runs.schedulers:
        await scheduler.stop(1)
    assert runs.count == 1
    assert await runs.recorded() == [(NOON, "succeeded")]
