"""Sessions start and end when memory or the database fails."""

import asyncio
import json
import logging
import time
from dataclasses import replace
from uuid import UUID

import asyncpg
import pytest
from fastmcp import Client

from butlers.errors import SessionFailed, Unavailable
from butlers.host import logs
from host.failing_memory import MODULES
from host.session_fixtures import LONG_MEMORY_TIMEOUT, THINK_RUNTIME, TOOL_CALLER, wait_until, write_program

STARTS = "the session starts without its memories"
ENDS = "the session ends without an episode"
RECORD = "the session goes on without a record"


def butler_warnings(caplog):
    """Return the butler's warnings and errors, without those about lost sessions."""
    lines = [line for line in caplog.records if line.levelno >= logging.WARNING and line.name.startswith("butlers")]
    return [line for line in lines if not line.getMessage().endswith("are marked as lost")]


@pytest.fixture
def warned(caplog):
    """A function that returns the butler's warnings and errors in order."""
    caplog.set_level("INFO", "butlers")
    return lambda: [(line.levelname, line.getMessage()) for line in butler_warnings(caplog)]


@pytest.fixture
def failing_memory(folder, hosting):
    """Start a butler whose memory fails as configured."""

    def host(seconds=5.0, think_of="cat", **how):
        settings = "".join(f'{name} = "{value}"\n' for name, value in how.items())
        module = f"[modules.failing_memory]\nenabled = true\n{settings}"
        place = folder(
            f"{THINK_RUNTIME}[butler.sessions]\nmemory_timeout_seconds = {seconds}\n{module}",
            memory=False,
            probe=False,
        )
        return hosting(write_program(place, think_of), modules=MODULES)

    return host


def memory_state(at):
    """Return the state of the failing memory: the calls it got."""
    return at.butler.modules[0].state


# Before the session


async def test_both_tools_are_called_by_name_on_the_butlers_own_server(failing_memory, warned, tenant):
    """Scenario: CC instance receives memory context
    Scenario: Session completion triggers episode write
    """
    async with failing_memory() as at:
        who = at.caller(tenant, request_id="r-1", roles=frozenset({"admin"}))
        answered = await at.spawn("Help user log weight", who)
        (context,), (episode,) = memory_state(at).contexts, memory_state(at).episodes
    butler = at.server.config.name
    assert (context["trigger_prompt"], context["butler"]) == ("Help user log weight", butler)
    assert (context["caller"].tenant, context["caller"].actor, context["caller"].is_admin) == (tenant, "ada", True)
    assert (episode["butler"], episode["session_id"]) == (butler, str(answered.session_id))
    assert (episode["caller"].tenant, episode["caller"].session_id) == (tenant, str(answered.session_id))
    assert episode["caller"].details == {"outcome": "succeeded", "trigger_source": "person"}
    assert "a private green tea" in answered.text
    assert "a private green tea" not in episode["content"]
    assert warned() == []


@pytest.mark.parametrize("how", ["conflict", "unavailable"])
async def test_a_context_that_fails_is_one_warning(failing_memory, warned, caplog, tenant, how):
    """Scenario: memory_context failure is fail-open"""
    async with failing_memory(context=how) as at:
        answered = await at.spawn("How are you?", at.caller(tenant))
        assert (await at.session(tenant))["status"] == "succeeded"
        assert len(memory_state(at).episodes) == 1
    assert answered.text == "How are you?"
    assert warned() == [("WARNING", STARTS)]
    (line,) = butler_warnings(caplog)
    assert line.session == str(answered.session_id)
    assert "the memory is in use" in line.reason or "can't be reached" in line.reason


async def test_a_context_that_breaks_as_nobody_foresaw_is_one_warning_and_the_traceback(
    failing_memory, warned, caplog, tenant
):
    """Scenario: memory_context failure is fail-open"""
    async with failing_memory(context="broken") as at:
        answered = await at.spawn("How are you?", at.caller(tenant))
    assert answered.text == "How are you?"
    # The first is the middleware's, as for every unexpected error.
    assert warned() == [("ERROR", "internal"), ("WARNING", STARTS)]
    assert "private" not in " ".join(logs.JsonFormatter().format(line) for line in butler_warnings(caplog))


@pytest.mark.parametrize("how", ["slow", "deaf"])
async def test_a_context_that_is_too_slow_is_not_waited_for(failing_memory, warned, tenant, how):
    async with failing_memory(seconds=0.3, context=how) as at:
        began = time.monotonic()
        answered = await at.spawn("How are you?", at.caller(tenant))
        took = time.monotonic() - began
    assert answered.text == "How are you?"
    assert took < 5
    assert warned() == [("WARNING", STARTS)]


@pytest.mark.parametrize("how", ["a number", "nothing", "a list", "an object", "an object named like an answer"])
async def test_a_context_that_makes_no_sense_is_left_out_with_one_warning(failing_memory, warned, tenant, how):
    async with failing_memory(context=how) as at:
        answered = await at.spawn("How are you?", at.caller(tenant))
    assert answered.text == "How are you?"
    assert warned() == [("WARNING", STARTS)]


# After the session


@pytest.mark.parametrize("how", ["conflict", "unavailable", "slow", "deaf"])
async def test_an_episode_that_can_not_be_kept_is_one_warning(failing_memory, warned, tenant, how):
    """Scenario: Episode write failure does not block session completion"""
    async with failing_memory(seconds=2, episode=how) as at:
        began = time.monotonic()
        answered = await at.spawn("How are you?", at.caller(tenant))
        row = await at.session(tenant)
        assert time.monotonic() - began < 8
    assert answered.text.endswith("How are you?")
    assert (row["status"], row["answer"]) == ("succeeded", answered.text)
    assert warned() == [("WARNING", ENDS)]


async def test_a_failed_session_whose_episode_can_not_be_kept_is_told_by_its_own_failure(
    failing_memory, warned, tenant
):
    async with failing_memory(episode="conflict", think_of="echo 'out of tea' >&2; exit 2") as at:
        with pytest.raises(SessionFailed, match="out of tea"):
            await at.spawn("How are you?", at.caller(tenant))
        assert (await at.session(tenant))["status"] == "failed"
    assert warned() == [("WARNING", ENDS)]


async def test_both_may_fail_with_one_warning_each(failing_memory, warned, tenant):
    async with failing_memory(context="conflict", episode="conflict") as at:
        assert (await at.spawn("How are you?", at.caller(tenant))).text == "How are you?"
    assert warned() == [("WARNING", STARTS), ("WARNING", ENDS)]


async def test_the_episode_is_written_after_the_session_is_said_to_have_ended(failing_memory, tenant):
    """The status does not wait for memory."""
    async with failing_memory(seconds=3, episode="slow") as at:
        running = asyncio.ensure_future(at.spawn("How are you?", at.caller(tenant)))

        async def ended():
            rows = await at.sessions(tenant)
            return rows and rows[0]["status"] == "succeeded"

        await wait_until(ended, "the record of its end", 2.5)
        assert not running.done()
        await running


# The database


SESSION = f"{THINK_RUNTIME}[butler.sessions]\n{LONG_MEMORY_TIMEOUT}"


async def test_a_session_is_carried_out_although_the_database_is_gone(
    folder, hosting, running, by_wire, wire, warned
):
    place = write_program(folder(SESSION), TOOL_CALLER)
    async with running(place):
        pass
    async with hosting(place, by_wire, with_jobs=False) as at:
        await wire.cut()
        done = await at.call_in_session(["memory_recall", {"topic": "tea"}])
    assert done["results"][0]["isError"], "its caller is told: fail-open is for the host"
    assert done["stdin"] == json.dumps([["memory_recall", {"topic": "tea"}]])
    assert warned() == [("WARNING", RECORD), ("WARNING", STARTS), ("WARNING", ENDS)]


async def test_a_database_that_goes_while_a_session_runs_does_not_take_its_answer(
    folder, hosting, running, by_wire, wire, warned, tenant
):
    place = write_program(folder(SESSION), "touch begun; while [ ! -e go ]; do sleep 0.03; done; echo done")
    async with running(place):
        pass
    async with hosting(place, by_wire, with_jobs=False) as at:
        session = asyncio.ensure_future(at.spawn("How?", at.caller(tenant)))
        await wait_until((place / "begun").exists, "the program to run")
        await wire.cut()
        (place / "go").touch()
        assert (await session).text == "done\n"
        warnings = warned()
        await wire.join()
        again = await at.spawn("How?", at.caller(tenant))
        rows = {row["id"]: row["status"] for row in await at.sessions(tenant)}
    assert warnings[1:] == [("WARNING", ENDS)]
    assert warnings[0][0] == "WARNING"
    assert warnings[0][1].startswith("a session's record could not be updated")
    assert rows[again.session_id] == "succeeded"


async def test_a_session_starts_although_every_connection_to_the_database_is_busy(folder, hosting, warned, tenant):
    place = write_program(folder(f"{SESSION}[butler.database]\npool_size = 1\n", memory=False), "cat")
    async with hosting(place) as at, Client(at.server.mcp) as client:
        busy = asyncio.ensure_future(client.call_tool("probe_write", {"text": "busy", "seconds": 4}))
        await asyncio.sleep(0.3)
        try:
            answered = await at.spawn("How are you?", at.caller(tenant))
        finally:
            await busy
    assert answered.text == "How are you?"
    assert warned() == [("WARNING", RECORD)]


async def test_a_session_starts_although_the_database_accepts_and_says_nothing(
    folder, hosting, running, by_wire, wire, warned
):
    """A server that hangs does not even refuse the connection."""
    place = write_program(folder(SESSION.replace("30", "1"), memory=False), "cat")
    async with running(place):
        pass
    async with hosting(place, by_wire, with_jobs=False) as at:
        await wire.cut()
        silent = await asyncio.start_server(_ignore_input, "127.0.0.1", wire.port)
        try:
            answered = await asyncio.wait_for(at.spawn("How are you?"), 20)
        finally:
            silent.close()
    assert answered.text == "How are you?"
    assert warned()[0] == ("WARNING", RECORD)


async def _ignore_input(reader, writer):
    while await reader.read(1000):
        pass
    writer.close()


async def test_an_internal_session_waits_for_the_database_instead(folder, hosting, running, by_wire, wire):
    """An internal session does not run without a record."""
    place = write_program(folder(SESSION), "touch ran; cat")
    async with running(place):
        pass
    async with hosting(place, by_wire, with_jobs=False) as at:
        await wire.cut()
        with pytest.raises(Unavailable):
            await at.spawn("Learn.", internal=True)
        await wire.join()
        assert (await at.spawn("Learn.", internal=True)).text == "Learn."
        # Without active sessions the lease of the instance is released.
        held = "select 1 from leases where expires_at > clock_timestamp()"
        observer = await asyncpg.connect(by_wire.admin_database_url)
        try:
            await wait_until(lambda: _none(observer, held), "the lease to be released", 5)
        finally:
            await observer.close()
    assert (place / "ran").exists()


async def _none(connection, statement):
    return not await connection.fetch(statement)


# Without memory


@pytest.mark.parametrize("memory", ["", "[modules.memory]\nenabled = false\n"], ids=["left out", "disabled"])
async def test_without_memory_there_are_no_tools_no_calls_and_no_warnings(folder, hosting, warned, caplog, memory):
    """Scenario: Butler without memory module runs normally"""
    place = write_program(folder(SESSION + memory, memory=False), TOOL_CALLER)
    (place / "CLAUDE.md").write_text("Be kind.")
    async with hosting(place) as at, Client(at.server.mcp) as client:
        offered = [tool.name for tool in await client.list_tools()]
        done = await at.call_in_session(["memory_recall", {"topic": "tea"}], ["probe_whoami", {}])
        assert UUID(done["session"])
    called = [line.tool for line in caplog.records if line.getMessage() == "call"]
    assert not [name for name in offered if name.startswith(("memory_", "entity_"))]
    assert done["stdin"].startswith("Be kind.\n\n[[")
    assert "there is no such tool" in json.dumps(done["results"][0])
    assert called == ["unknown", "probe_whoami"]
    assert warned() == []


async def test_a_butler_with_memory_loads_its_configuration_and_brings_its_jobs(folder, hosting):
    """Scenario: Butler starts with valid memory module config"""
    place = folder(SESSION, fresh=True)
    with (place / "butler.toml").open("a") as file:
        file.write(
            "[modules.memory.schedule]\ndecay_sweep = '5 4 * * *'\n[modules.memory.retrieval]\ndefault_limit = 3\n"
        )
    async with hosting(place) as at:
        loaded = at.butler.config.modules["memory"]
        jobs = {status.job: status.cron for status in await at.server.jobs()}
    assert {"consolidate", "decay_sweep", "episode_cleanup"} <= set(jobs)
    assert jobs["decay_sweep"] == "5 4 * * *"
    assert loaded.retrieval.default_limit == 3


async def test_a_memory_that_could_not_start_is_no_memory(folder, hosting, environment, warned):
    """An optional module that fails to start has no tools."""
    place = write_program(folder(SESSION, memory=False, probe=False), "cat")
    with (place / "butler.toml").open("a") as file:
        file.write(
            "[modules.memory]\nenabled = true\noptional = true\n[modules.memory.embedding]\nfolder = '/nowhere'\n"
        )
    async with hosting(place, replace(environment)) as at:
        before = warned()
        answered = await at.spawn("How are you?")
    assert answered.text == "How are you?"
    assert warned() == before
