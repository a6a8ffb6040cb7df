"""The `butlers jobs` commands, and the `butlers doctor` check of jobs."""

import json
import re
from uuid import uuid4

import asyncpg
import pytest

from .conftest import write_butler
from .shell import Shell

JOBS = ["consolidate", "consolidation_retry", "decay_sweep", "episode_cleanup", "reembed", "index_upkeep"]
PROMPT = """
[butler.runtime]
type = "command"
command = ["sh", "-c", "cat >> heard; if test -e broken; then cat broken >&2; exit 3; fi; echo 'Good morning.'"]
[[butler.schedule]]
name = "morning"
cron = "0 8 * * *"
prompt = "Say good morning"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return the folder of a butler with a scheduled prompt and a database of its own."""
    return write_butler(tmp_path_factory.mktemp("jobs"), f"t{uuid4().hex[:12]}", PROMPT)


@pytest.fixture(scope="module")
def shell(home, cluster, place):
    started = Shell(home)
    assert started("migrate", place).returncode == 0
    yield started
    started.close()


@pytest.fixture
async def record(cluster, place, shell):
    """Connect as the administrator to the database, with an empty job_runs table."""
    connection = await asyncpg.connect(cluster.dsn(f"butler_{place.name}"))
    await connection.execute("delete from job_runs")
    (place / "broken").unlink(missing_ok=True)
    yield connection
    await connection.close()


async def runs(record, job):
    return [
        dict(row)
        for row in await record.fetch(
            "select scheduled_for, status, attempt, error, result from job_runs where job = $1 order by started_at",
            job,
        )
    ]


async def insert_run(record, job, hours=0.0, status="succeeded", error=None):
    """Insert a run of that many hours ago."""
    await record.execute(
        "insert into job_runs (tenant_id, job, scheduled_for, started_at, finished_at, status, error)"
        " select 'default', $1, at, at, at, $3, $4 from (select now() - make_interval(secs => $2) as at) moments",
        job,
        hours * 3600,
        status,
        error,
    )


def jobs_by_name(shell, place):
    """Return the JSON of `jobs list`, by the job's name."""
    result = shell("jobs", "list", place, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    return {row["job"]: row for row in json.loads(result.stdout)}


def check(shell, place):
    """Return the doctor's check of jobs."""
    result = shell("doctor", place, "--json")
    assert result.returncode == 0, "a job is never a reason not to serve"
    return {each["name"]: each for each in json.loads(result.stdout)}["jobs"]


async def test_jobs_that_never_ran_are_listed_with_their_next_run(shell, place, record):
    rows = jobs_by_name(shell, place)
    assert list(rows) == [*JOBS, "morning"]
    assert all(row["next_run"] and row["status"] is None and row["started_at"] is None for row in rows.values())
    assert rows["decay_sweep"]["cron"] == "0 3 * * *"
    table = shell("jobs", "list", place)
    assert (table.returncode, table.stderr) == (0, "")
    assert re.search(r"│ morning +│ next run: \d{4}-\d\d-\d\d 08:00 +│\n│ 0 8 \* \* \* +│", table.stdout)
    piped = shell("jobs", "list", place, columns=None).stdout.splitlines()
    assert re.split(" {2,}", piped[0]) == ["job", "cron", "status", "next run", "started at", "error"]
    assert re.fullmatch(r"morning +0 8 \* \* \* +\d{4}-\d\d-\d\d 08:00", piped[-1])
    first = min(rows.values(), key=lambda row: row["next_run"])
    assert check(shell, place)["found"].startswith(f"7, the next is {first['job']} at {first['next_run'][:16]}")


async def test_a_job_run_by_hand_is_recorded_and_shows_its_counts(shell, place, record):
    shown = shell("jobs", "run", place, "decay_sweep")
    assert shown.returncode == 0
    assert re.search(r"│ facts_expired +│ 0 +│", shown.stdout)
    result = json.loads(shell("jobs", "run", place, "episode_cleanup", "--json").stdout)
    assert (result["expired_deleted"], result["remaining"]) == (0, 0)
    (run,) = await runs(record, "episode_cleanup")
    assert (run["scheduled_for"], run["status"], run["attempt"]) == (None, "succeeded", 1)
    assert json.loads(run["result"]) == result
    rows = jobs_by_name(shell, place)
    assert (rows["episode_cleanup"]["status"], rows["episode_cleanup"]["scheduled_for"]) == ("succeeded", None)
    assert rows["episode_cleanup"]["succeeded_at"] == rows["episode_cleanup"]["finished_at"]
    assert re.search(r"│ decay_sweep +│ succeeded +│", shell("jobs", "list", place).stdout)


async def test_a_prompt_is_run_by_hand_like_any_job(shell, place, record):
    result = json.loads(shell("jobs", "run", place, "morning", "--json").stdout)
    assert result["characters"] == len("Good morning.\n")
    session = await record.fetchrow("select trigger_source, status from sessions where id = $1", result["session_id"])
    assert dict(session) == {"trigger_source": "schedule:morning", "status": "succeeded"}
    assert [run["scheduled_for"] for run in await runs(record, f"{place.name}/morning")] == [None]
    assert (place / "heard").read_text() == "Say good morning"


@pytest.mark.parametrize("name", JOBS)
async def test_every_job_of_the_memory_can_be_run_by_hand(shell, place, record, name):
    result = shell("jobs", "run", place, name, "--json")
    assert (result.returncode, [run["status"] for run in await runs(record, name)]) == (0, ["succeeded"])
    assert json.loads(result.stdout)


def one_line(result):
    """Return the one line of a refused command's stderr."""
    assert (result.returncode, result.stdout) == (1, ""), result.stdout
    (line,) = result.stderr.splitlines()
    return line


async def test_an_unknown_job_is_refused_with_the_list_of_jobs(shell, place, record):
    known = ", ".join([*JOBS, "morning"])
    assert one_line(shell("jobs", "run", place, "decay")) == f"butlers: there is no job decay. There are: {known}."
    assert await record.fetchval("select count(*) from job_runs") == 0


async def test_a_job_that_runs_elsewhere_is_not_run_a_second_time(shell, place, record):
    for name, key in (("decay_sweep", "decay_sweep"), ("morning", f"{place.name}/morning")):
        await record.execute(
            "insert into leases (tenant_id, name, token, expires_at)"
            " values ('default', 'butlers job ' || $1, gen_random_uuid(), now() + interval '1 minute')",
            key,
        )
        assert one_line(shell("jobs", "run", place, name)) == (
            f"butlers: another process is running {name}. `butlers jobs list DIR` shows its status."
        )
    assert await record.fetchval("select count(*) from job_runs") == 0
    await record.execute("delete from leases where name like 'butlers job %'")
    await insert_run(record, "decay_sweep", status="running")
    assert jobs_by_name(shell, place)["decay_sweep"]["status"] == "running"


async def test_a_job_that_fails_says_why_and_is_seen_failing_until_it_succeeds(shell, place, record):
    (place / "broken").write_text("the key has run out")
    message = "sh ended with exit code 3: the key has run out"
    refused = shell("jobs", "run", place, "morning")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-1].startswith(f"butlers: {message}")
    (run,) = await runs(record, f"{place.name}/morning")
    assert (run["status"], run["scheduled_for"], message in run["error"]) == ("failed", None, True)
    row = jobs_by_name(shell, place)["morning"]
    assert (row["status"], row["error"], row["succeeded_at"]) == ("failed", run["error"], None)
    table = shell("jobs", "list", place, columns=300).stdout
    assert re.search(r"│ morning +│ failed +│", table)
    assert re.search(r"error: .*the key has run out", table)
    found = check(shell, place)
    assert (found["state"], found["found"]) == ("warn", f"morning: {run['error']}")
    assert found["fix"] == "Fix the cause, or try `butlers jobs run DIR morning`."
    (place / "broken").unlink()
    assert shell("jobs", "run", place, "morning").returncode == 0
    row = jobs_by_name(shell, place)["morning"]
    assert (row["status"], row["error"]) == ("succeeded", None)
    assert check(shell, place)["state"] == "ok"


async def test_a_job_run_by_hand_is_as_quiet_as_every_command(shell, place, record):
    assert shell("jobs", "run", place, "morning").stderr == ""
    (place / "broken").write_text("the key has run out")
    assert one_line(shell("jobs", "run", place, "morning")).startswith("butlers: sh ended with exit code 3")


async def test_control_characters_of_a_program_are_escaped(shell, place, record):
    (place / "broken").write_text("\x1b[31mred \u202ebackwards [bold]markup[/bold]")
    shown = [
        shell("jobs", "run", place, "morning").stderr,
        shell("jobs", "list", place, columns=300).stdout,
        shell("doctor", place, columns=300).stdout,
    ]
    assert ["[bold]markup[/bold]" in text for text in shown] == [True] * 3
    assert [sorted(set(text) & {"\x1b", "\u202e"}) for text in shown] == [[]] * 3


@pytest.mark.parametrize("late", ["decay_sweep", "reembed"], ids=["once a day", "every ten minutes"])
async def test_the_doctor_tells_which_job_should_have_run_by_now(shell, place, record, late):
    for name in JOBS:
        await insert_run(record, name)
    await insert_run(record, f"{place.name}/morning")
    assert check(shell, place)["state"] == "ok"
    await record.execute("update job_runs set started_at = now() - interval '3 days' where job = $1", late)
    found = check(shell, place)
    assert (found["state"], found["found"]) == ("warn", f"{late} should have run by now")
    assert found["fix"] == "Jobs run while the butler runs: `butlers run DIR`."


async def test_the_doctor_tells_of_a_run_that_was_lost(shell, place, record):
    await insert_run(record, "consolidate", hours=0.1, status="lost", error="the process that ran it ended")
    found = check(shell, place)
    assert (found["state"], found["found"]) == ("warn", "consolidate: the process that ran it ended")
    await insert_run(record, "consolidate")
    assert check(shell, place)["state"] == "ok"


def test_a_prompt_with_the_name_of_a_job_is_refused_by_every_command(shell, tmp_path, place):
    taken = PROMPT.replace('"morning"', '"reembed"')
    folder = write_butler(tmp_path, place.name, taken)
    message = "butler.schedule[0].name: 'reembed' is the name of a built-in job"
    for words in (("jobs", "list", folder), ("jobs", "run", folder, "reembed"), ("run", folder)):
        assert one_line(shell(*words)).endswith(f"{message}. Give the prompt another name.")
    checks = json.loads(shell("doctor", folder, "--json").stdout)
    assert (checks[-1]["state"], checks[-1]["found"]) == ("fail", message)
