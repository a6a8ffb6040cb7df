"""Scheduled prompts: their sessions, their records, and their failures."""

import asyncio
import json
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from butlers import app
from butlers.environment import Environment
from butlers.errors import ConfigurationFault
from models import chat, talks

from .fake_clock import EVERY_SECOND, until

YEARLY = "0 0 1 1 *"
COMMAND = '[butler.runtime]\ntype = "command"\ncommand = ["./think"]\n'


def entry(name, prompt="Say good morning", cron=EVERY_SECOND):
    """Return one entry of the schedule; JSON strings are valid TOML."""
    message = {"name": name, "cron": cron, "prompt": prompt}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in message.items()]
    return f"[[butler.schedule]]\n{''.join(lines)}"


def think(place, text="cat >> heard\necho >> heard\necho 'Good morning.'"):
    """Write the butler's `think` program."""
    script = place / "think"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)


def input_lines(place):
    """Return all lines of the program's input."""
    return (place / "heard").read_text().splitlines() if (place / "heard").exists() else []


@pytest.fixture
async def record(folder, environment):
    """An administrator's connection to the shared butler's database."""
    async with app.migrated_database(app.load_configuration(folder(probe=False)), environment) as place:
        connection = await asyncpg.connect(place.admin_dsn)
        yield connection
        await connection.close()


@pytest.fixture
def name():
    """A unique name for a prompt, with unusual characters."""
    return f'Früh am "Morgen" / 100 % {uuid4().hex[:8]}'


async def runs(record, name):
    rows = await record.fetch(
        "select job, scheduled_for, attempt, status, error, result from job_runs where job like '%/' || $1"
        " order by started_at",
        name,
    )
    return [{**row, "result": json.loads(row["result"])} for row in rows]


async def sessions(record, name):
    rows = await record.fetch(
        "select id::text, tenant_id, butler, actor, prompt, runtime, status, internal, usage, error, finished_at"
        " from sessions where trigger_source = 'schedule:' || $1 order by started_at",
        name,
    )
    return [{**row, "usage": json.loads(row["usage"])} for row in rows]


async def wait_for_runs(record, name, times=1):
    """Return the runs of a prompt once this many have ended."""

    async def enough():
        return len([run for run in await runs(record, name) if run["status"] != "running"]) >= times

    await until(enough)
    return await runs(record, name)


async def make_overdue(record, server, name):
    """Insert a run from two years ago, so that a yearly prompt is overdue."""
    await record.execute(
        "insert into job_runs (tenant_id, job, scheduled_for, status, finished_at)"
        " values ('default', $1, now() - interval '2 years', 'succeeded', now())",
        f"{server}/{name}",
    )


async def shift_finished(record, name, seconds):
    """Set the end of a prompt's runs to this many seconds earlier."""
    await record.execute(
        "update job_runs set finished_at = finished_at - make_interval(secs => $2) where job like '%/' || $1",
        name,
        seconds,
    )


@pytest.mark.parametrize("memory", [True, False], ids=["with memory", "without memory"])
async def test_a_prompt_is_a_session_that_starts_by_the_clock(folder, running, record, name, memory):
    place = folder(COMMAND + entry(name, "Say good\nmorning 😀"), memory=memory, probe=False)
    think(place)
    async with running(place) as server:
        first, *_ = await wait_for_runs(record, name)
        page = (await server.metrics.render(server.database, {}, server.jobs)).decode()
    session, *_ = await sessions(record, name)
    butler = server.config.name
    received = input_lines(place)
    at = received.index("Say good")
    assert received[at : at + 2] == ["Say good", "morning 😀"]
    assert ("# Memory Context" in received[:at]) is memory
    assert (first["job"], first["status"], first["attempt"], first["error"]) == (
        f"{butler}/{name}",
        "succeeded",
        1,
        None,
    )
    assert first["result"] == {"session_id": session["id"], "characters": len("Good morning.\n")}
    assert (session["status"], session["runtime"], session["usage"], session["error"]) == (
        "succeeded",
        "command",
        {},
        None,
    )
    assert (session["tenant_id"], session["butler"], session["actor"], session["internal"]) == (
        "default",
        butler,
        "scheduler",
        False,
    )
    assert session["prompt"] == "Say good\nmorning 😀"
    assert session["finished_at"] is not None
    label = name.replace('"', '\\"')
    assert f'butlers_job_failing{{job="{label}"}} 0.0' in page
    assert f'butlers_job_last_success_timestamp_seconds{{job="{label}"}}' in page


async def test_the_tokens_of_a_prompt_are_kept_where_the_runtime_tells_them(folder, running, record, name):
    async with chat([talks("Good morning.", taken=31, given=4)]) as model:
        runtime = f'[butler.runtime]\ntype = "openai"\nbase_url = "{model.url}/v1"\nmodel = "m"\n'
        async with running(folder(runtime + entry(name), memory=False, probe=False)):
            await wait_for_runs(record, name)
    session, *_ = await sessions(record, name)
    assert model.asked[0].prompt == "Say good morning"
    assert (session["status"], session["runtime"]) == ("succeeded", "openai")
    assert session["usage"] == {"input_tokens": 31, "output_tokens": 4}


async def test_a_prompt_without_its_runtime_fails_visibly_and_is_tried_again(folder, running, record, name):
    place = folder(COMMAND + entry(name, cron=YEARLY), memory=False, probe=False)
    butler = app.load_configuration(place).butler.name
    await make_overdue(record, butler, name)
    async with running(place) as server:
        _, run = await wait_for_runs(record, name, 2)
        failing = (await server.metrics.render(server.database, {}, server.jobs)).decode()
    (session,) = await sessions(record, name)
    message = f"the program {place}/think is not installed"
    assert (run["status"], run["attempt"], run["error"].startswith(f"unavailable: {message}. ")) == (
        "failed",
        1,
        True,
    )
    assert (session["status"], session["error"]) == ("failed", message)
    assert 'job="Früh' in failing.split("butlers_job_failing{")[1].split("} 1.0")[0]
    think(place)
    async with running(place):
        await asyncio.sleep(0.3)
    assert len(await runs(record, name)) == 2, "it waits for half a minute"
    await shift_finished(record, name, 31)
    async with running(place):
        _, _, again = await wait_for_runs(record, name, 3)
    assert (again["status"], again["attempt"], again["scheduled_for"]) == ("succeeded", 2, run["scheduled_for"])
    assert [each["status"] for each in await sessions(record, name)] == ["failed", "succeeded"]
    assert input_lines(place) == ["Say good morning"]


async def test_a_session_whose_process_is_gone_is_lost_and_does_not_run_for_ever(folder, running, record, name):
    place = folder(COMMAND + entry(name), memory=False, probe=False)
    think(place)
    await record.execute(
        "insert into sessions (tenant_id, butler, trigger_source, prompt, runtime, started_at)"
        " values ('default', $1, $2, 'Say good morning', 'command', now() - interval '1 day')",
        app.load_configuration(place).butler.name,
        f"schedule:{name}",
    )
    async with running(place):
        await wait_for_runs(record, name, 2)
    assert [each["status"] for each in await sessions(record, name)][:2] == ["lost", "succeeded"]


async def test_a_prompt_may_not_have_the_name_of_a_job(folder, running):
    place = folder(COMMAND + entry("Good morning", cron=YEARLY) + entry("decay_sweep", cron=YEARLY), probe=False)
    with pytest.raises(
        ConfigurationFault, match=r"butler\.schedule\[1\]\.name: 'decay_sweep' is the name of a built-in job"
    ):
        async with running(place):
            pass
    alone = folder(COMMAND + entry("decay_sweep", cron=YEARLY), memory=False, probe=False)
    async with running(alone) as server:
        assert [status.job for status in await server.jobs()] == ["decay_sweep"], "where there is none it may"


async def test_a_prompt_whose_name_no_database_can_keep_is_refused(folder):
    with pytest.raises(ConfigurationFault, match=r"butler\.schedule\[0\]\.name"):
        app.load_configuration(folder(entry("good\x00morning"), probe=False))


@asynccontextmanager
async def on_one_database(cluster, worker, home, folder, running, names, extra):
    """Start butlers with these names on the shared database."""
    database = f"butler_shared_{worker}"
    environment = Environment(
        home=home,
        database_url=cluster.dsn(database, f"{database}_app"),
        admin_database_url=cluster.dsn(database),
        log_level="warning",
        log_format="console",
    )
    places = [folder(extra, probe=False) for _ in names]
    for place, name in zip(places, names, strict=True):
        config = place / "butler.toml"
        config.write_text(config.read_text().replace(f'"shared_{worker}"', f'"{name}"'))
        think(place)
    async with running(places[0], env=environment), running(places[1], env=environment):
        yield places


async def test_two_butlers_on_one_database_share_memory_and_each_has_its_own_prompts(
    cluster, worker, home, folder, running, record, name
):
    often = f'[modules.memory.schedule]\ndecay_sweep = "{EVERY_SECOND}"\n'
    started = await record.fetchval("select now()")
    async with on_one_database(
        cluster, worker, home, folder, running, ("ada", "bob"), COMMAND + entry(name) + often
    ) as places:

        async def both():
            done = [run["job"] for run in await runs(record, name) if run["status"] == "succeeded"]
            return min(done.count(f"{butler}/{name}") for butler in ("ada", "bob")) >= 2

        await until(both)
    swept = await record.fetch(
        "select scheduled_for, status from job_runs where job = 'decay_sweep' and started_at > $1", started
    )
    assert len({row["scheduled_for"] for row in swept}) == len(swept) >= 1
    assert {row["status"] for row in swept} <= {"succeeded", "lost"}
    kept = await runs(record, name)
    for butler, place in zip(("ada", "bob"), places, strict=True):
        mine = [run for run in kept if run["job"] == f"{butler}/{name}"]
        assert (
            len({run["scheduled_for"] for run in mine}) == len(mine) == input_lines(place).count("Say good morning")
        )
    assert {each["butler"] for each in await sessions(record, name)} == {"ada", "bob"}
