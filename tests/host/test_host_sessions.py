"""Sessions: records, queue, outcomes and the trigger tool."""

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import pytest
from fastmcp import Client

from butlers.errors import ConfigurationFault, Overloaded, SessionFailed, TimedOut
from host.session_fixtures import (
    LOGGING_PROGRAM,
    LONG_MEMORY_TIMEOUT,
    THINK_RUNTIME,
    TOOL_CALLER,
    log,
    session_processes,
    sessions_config,
    started_lines,
    wait_until,
    write_program,
)

# Processes in the program's group that ignore SIGTERM.
GRANDCHILDREN = "(trap '' TERM; sleep 600) & (trap '' TERM; sh -c 'sleep 600; true') &"


def claude(place, **result):
    """Write a program that answers like the Claude CLI."""
    return write_program(place, f"cat > /dev/null\ncat <<'END'\n{json.dumps(result)}\nEND")


def tenant_config(tenant):
    return f'[butler.auth]\ntenant = "{tenant}"\n'


# The record


async def test_a_session_is_recorded_with_who_asked_what_and_what_came_of_it(folder, hosting, tenant):
    place = folder('[butler.runtime]\ncommand = ["./think"]\n', memory=False)
    usage = {"input_tokens": 5, "output_tokens": 13}
    claude(place, result="Very well.", session_id="s-1", usage=usage)
    async with hosting(place) as at:
        answered = await at.spawn("How are you?", at.caller(tenant, request_id="r-1"), trigger_source="cli")
        row = await at.session(tenant)
    assert (row["id"], row["butler"], row["runtime"]) == (answered.session_id, at.server.config.name, "claude")
    assert (row["trigger_source"], row["prompt"], row["actor"], row["request_id"]) == (
        "cli",
        "How are you?",
        "ada",
        "r-1",
    )
    assert (row["status"], row["answer"], row["error"]) == ("succeeded", "Very well.", None)
    assert (row["usage"], row["tools"]) == (usage, {})
    assert row["started_at"] <= row["finished_at"]
    assert (row["internal"], row["runtime_session_id"]) == (False, "s-1")


@pytest.mark.parametrize(
    ("text", "fault", "status", "reason"),
    [
        ("echo half; echo 'out of tea' >&2; exit 2", SessionFailed, "failed", "exit code 2: out of tea"),
        (f"{GRANDCHILDREN} sleep 600", TimedOut, "timed_out", "the session took longer than 1 s"),
    ],
)
async def test_a_session_that_comes_to_nothing_says_why_and_leaves_nothing_running(
    folder, hosting, tenant, text, fault, status, reason
):
    place = write_program(folder(f"{THINK_RUNTIME}timeout_seconds = 1\n", memory=False), text)
    async with hosting(place) as at:
        with pytest.raises(fault):
            await at.spawn("How?", at.caller(tenant))
        row = await at.session(tenant)
        await wait_until(lambda: not session_processes(row["id"]), "the program to be gone with all it started", 5)
    assert (row["status"], row["answer"], row["usage"]) == (status, None, {})
    assert row["error"].endswith(reason)
    assert row["finished_at"] is not None


async def test_an_answer_is_kept_as_far_as_there_is_room(folder, hosting, tenant):
    place = write_program(
        folder(THINK_RUNTIME, memory=False), r"printf 'a\000b'; head -c 3000000 /dev/zero | tr '\0' x"
    )
    async with hosting(place) as at:
        answered = await at.spawn("How?", at.caller(tenant))
        row = await at.session(tenant)
    assert len(answered.text) == 3_000_003
    assert row["answer"].startswith("abxxx")
    assert 90_000 < len(row["answer"]) <= 100_000


async def test_of_an_internal_session_neither_the_prompt_nor_the_answer_is_kept(folder, hosting, tenant):
    place = write_program(folder(THINK_RUNTIME), "cat")
    (place / "CLAUDE.md").write_text("Be kind.")
    async with hosting(place) as at:
        await at.call_tool(
            "memory_store_fact", tenant, subject="user", predicate="tea", content="a private green tea"
        )
        answered = await at.spawn("a private memory", at.caller(tenant), internal=True)
        row = await at.session(tenant)
        assert await at.episodes(tenant) == []
    assert answered.text == "a private memory", "neither the manual nor memories are in it"
    assert (row["internal"], row["status"], row["answer"]) == (True, "succeeded", None)
    assert "private" not in repr(row)


# The queue


@asynccontextmanager
async def start_sessions(at, place, tenant, number, *, together=False):
    """Start sessions one after the other or at once, and let them end with the block."""
    tasks = []
    try:
        for each in range(number):
            tasks.append(asyncio.ensure_future(at.spawn(f"{each}\n", at.caller(tenant))))
            if not together:
                await wait_until(lambda: has_sessions(at, tenant, len(tasks)), "the session to be recorded")
        yield tasks
    finally:
        (place / "go").touch()
        await asyncio.gather(*tasks, return_exceptions=True)


async def has_sessions(at, tenant, number):
    return len(await at.sessions(tenant)) == number


async def finish_in_order(place, tasks):
    """Let the programs end in the order of their requests, two running at a time."""
    for number, each in enumerate(tasks):
        (place / f"go{number}").touch()
        await asyncio.wait_for(asyncio.shield(each), 5)
        await wait_until(partial(has_started, place, min(number + 3, 6)), "the next to run")


def has_started(place, number):
    return len(started_lines(place)) == number


def max_concurrent(lines):
    running = [sum(1 if line[0] == "+" else -1 for line in lines[: number + 1]) for number in range(len(lines))]
    return max(running)


@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "in the same moment"])
async def test_no_more_run_at_once_than_may_and_the_others_come_in_their_order(folder, hosting, tenant, together):
    place = write_program(folder(sessions_config(max_concurrent=2), memory=False), LOGGING_PROGRAM)
    async with hosting(place) as at, start_sessions(at, place, tenant, 6, together=together) as tasks:
        await wait_until(lambda: len(log(place)) == 2, "two to run")
        await wait_until(lambda: has_sessions(at, tenant, 6), "all to be recorded")
        statuses = sorted(row["status"] for row in await at.sessions(tenant))
        assert statuses == ["running"] * 2 + ["waiting"] * 4
        await finish_in_order(place, tasks)
        rows = await at.sessions(tenant)
    assert [row["status"] for row in rows] == ["succeeded"] * 6
    assert max_concurrent(log(place)) == 2
    # The first two start at the same time.
    assert sorted(started_lines(place)[:2]) + started_lines(place)[2:] == [f"+{number}" for number in range(6)]


@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "in the same moment"])
async def test_one_more_than_may_wait_is_refused(folder, hosting, tenant, together):
    place = write_program(folder(sessions_config(max_concurrent=1, max_queued=4), memory=False), LOGGING_PROGRAM)
    async with hosting(place) as at:
        async with start_sessions(at, place, tenant, 6 if together else 3, together=together) as tasks:
            await wait_until(lambda: log(place), "the first to run")
            await wait_until(lambda: has_sessions(at, tenant, 3), "all that may wait to be recorded", 3)
            with pytest.raises(
                Overloaded, match="2 sessions of this tenant are waiting, which is its share"
            ) as refused:
                await at.spawn("7\n", at.caller(tenant))
        ended = [type(each.exception()).__name__ for each in tasks]
        await at.spawn("8\n", at.caller(tenant))
        assert {row["status"] for row in await at.sessions(tenant)} == {"succeeded"}
    assert ended == ["NoneType"] * 3 + ["Overloaded"] * (len(tasks) - 3)
    assert "max_queued" in refused.value.hint
    assert "+7" not in log(place)


async def test_a_session_that_is_cancelled_while_it_waits_leaves_its_place_to_the_next(folder, hosting, tenant):
    place = write_program(folder(sessions_config(max_concurrent=1), memory=False), LOGGING_PROGRAM)
    async with hosting(place) as at:
        async with start_sessions(at, place, tenant, 3) as tasks:
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
        rows = await at.sessions(tenant)
    assert sorted(row["status"] for row in rows) == ["cancelled", "succeeded", "succeeded"]
    assert "+1" not in log(place)
    assert all(row["finished_at"] for row in rows)


async def test_a_session_that_is_cancelled_as_its_turn_comes_is_not_said_to_wait_for_ever(
    folder, hosting, tenant, cluster, worker
):
    place = write_program(folder(sessions_config(max_concurrent=1), memory=False), LOGGING_PROGRAM)
    administrator = await asyncpg.connect(cluster.dsn(f"butler_shared_{worker}"))
    async with hosting(place) as at:
        async with start_sessions(at, place, tenant, 2) as (first, second):
            await wait_until(lambda: log(place), "the first to run")
            async with administrator.transaction():
                # The start can't be recorded while another transaction holds the row.
                await administrator.execute(
                    "select 1 from sessions where tenant_id = $1 and status = 'waiting' for update", tenant
                )
                (place / "go0").touch()
                await first
                await asyncio.sleep(0.2)
                second.cancel()
                await asyncio.sleep(0.2)
            with pytest.raises(asyncio.CancelledError):
                await second
        rows = await at.sessions(tenant)
    await administrator.close()
    assert sorted(row["status"] for row in rows) == ["cancelled", "succeeded"]


async def test_a_cancelled_session_ends_with_all_it_started_and_leaves_no_episode(folder, hosting, tenant):
    place = write_program(folder(sessions_config()), f"{GRANDCHILDREN} touch begun; sleep 600")
    async with hosting(place) as at:
        running = asyncio.ensure_future(at.spawn("Go on.", at.caller(tenant)))
        await wait_until((place / "begun").exists, "the program to run")
        assert (await at.session(tenant))["status"] == "running"
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 20)
        row = await at.session(tenant)
        await wait_until(lambda: not session_processes(row["id"]), "the program to be gone", 5)
        assert await at.episodes(tenant) == []
    assert row["status"] == "cancelled"
    assert row["finished_at"] is not None


# Scheduled prompts


async def test_a_prompt_of_the_schedule_is_a_session_with_memory_around_it(folder, hosting, tenant):
    entry = '[[butler.schedule]]\nname = "morning"\ncron = "* * * * * *"\nprompt = "What is due today?"\n'
    place = write_program(
        folder(sessions_config() + tenant_config(tenant) + entry, fresh=True), "cat; echo; echo nothing is due"
    )
    (place / "CLAUDE.md").write_text("Be brief.")
    async with hosting(place) as at:
        done = "select * from job_runs where job like '%/morning' and status = 'succeeded' order by started_at"
        run = (await wait_until(partial(at.rows, done), "a run that ended well"))[0]
        row, episode = (await at.sessions())[0], (await at.episodes())[0]
    assert (row["trigger_source"], row["prompt"], row["actor"]) == (
        "schedule:morning",
        "What is due today?",
        "scheduler",
    )
    assert row["answer"].startswith("Be brief.\n\n# Memory Context")
    assert row["answer"].endswith("nothing is due\n")
    assert UUID(run["result"]["session_id"]) == episode["session_id"] == row["id"]
    assert episode["metadata"] == {"outcome": "succeeded", "trigger_source": "schedule:morning"}


async def test_a_prompt_may_not_take_the_name_of_a_job(folder, hosting):
    entry = '[[butler.schedule]]\nname = "decay_sweep"\ncron = "0 0 1 1 *"\nprompt = "Sweep."\n'
    with pytest.raises(ConfigurationFault, match=r"butler\.schedule\[0\]\.name: 'decay_sweep'"):
        async with hosting(folder(entry)):
            pass


# Processes that end


WAITING_PROGRAM = "touch \"begun$(sed -n '$p')\"; sleep 600"
TOOL = f"{THINK_RUNTIME}[butler.sessions]\ntrigger_tool = true\n{LONG_MEMORY_TIMEOUT}"


async def request_session(address, prompt):
    """Request a session without waiting for it."""

    async def ask():
        async with Client(address) as client:
            await client.call_tool("trigger", {"prompt": prompt}, raise_on_error=False)

    return asyncio.ensure_future(ask())


async def test_a_process_that_runs_already_marks_the_session_of_one_that_is_killed(folder, process, hosting, tenant):
    place = folder(TOOL + tenant_config(tenant), memory=False)
    write_program(place, "touch begun; sleep 60")
    async with hosting(place, recovery_seconds=0.2) as at:
        killed = process(place)
        call = await request_session(killed.ready(), "1")
        await wait_until((place / "begun").exists, "the program to run")
        # It is left alone while its process lives, however often the others look.
        await asyncio.sleep(0.6)
        assert (await at.session())["status"] == "running"
        killed.end(signal.SIGKILL)

        async def is_lost():
            return (await at.session())["status"] == "lost"

        await wait_until(is_lost, "the session to be marked as lost", 20)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_session_whose_butler_was_killed_is_lost_and_that_of_a_living_one_is_not(
    folder, process, hosting, tenant
):
    place = folder(TOOL + tenant_config(tenant), memory=False)
    write_program(
        place, f'prompt=$(cat); touch "begun$prompt"; {GRANDCHILDREN} while [ ! -e go ]; do sleep 0.05; done; echo ok'
    )
    killed, living = process(place), process(place)
    calls = [await request_session(each.ready(), name) for each, name in ((killed, "1"), (living, "2"))]
    for name in ("begun1", "begun2"):
        await wait_until((place / name).exists, "the program to run")
    killed.end(signal.SIGKILL)
    async with hosting(place, recovery_seconds=0.5) as at:

        async def is_lost():
            return "lost" in {row["status"] for row in await at.sessions()}

        await wait_until(is_lost, "the lease of the killed process to expire", 20)
        rows = {row["prompt"]: row for row in await at.sessions()}
        assert (rows["1"]["status"], rows["1"]["error"]) == ("lost", "the butler that ran it ended")
        assert rows["1"]["finished_at"] is not None
        assert rows["2"]["status"] == "running"
        await wait_until(
            lambda: not session_processes(rows["1"]["id"]), "the program to be gone with all it started", 6
        )
        assert session_processes(rows["2"]["id"])
        (place / "go").touch()
        await asyncio.wait_for(calls[1], 20)
        assert {row["prompt"]: row["status"] for row in await at.sessions()} == {"1": "lost", "2": "succeeded"}
    calls[0].cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("door", ["http", "stdio"])
async def test_a_butler_that_is_told_to_stop_ends_its_sessions_and_says_so(folder, process, hosting, tenant, door):
    limits = "[butler.limits]\ngrace_seconds = 1\n"
    place = write_program(
        folder(TOOL + tenant_config(tenant) + limits, memory=False), f"{GRANDCHILDREN} {WAITING_PROGRAM}"
    )
    butler = process(place, *(["--stdio"] if door == "stdio" else []))
    if door == "http":
        call = await request_session(butler.ready(), "x")
    else:
        initialize = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        for number, method, params in (
            (1, "initialize", initialize),
            (None, "notifications/initialized", {}),
            (2, "tools/call", {"name": "trigger", "arguments": {"prompt": "x"}}),
        ):
            message = {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
            butler.popen.stdin.write(json.dumps(message) + "\n")
            butler.popen.stdin.flush()
        call = asyncio.ensure_future(asyncio.sleep(0))
    await wait_until((place / "begunx").exists, "the program to run")
    assert await asyncio.to_thread(butler.end, signal.SIGTERM, 20) == 0
    await asyncio.gather(call, return_exceptions=True)
    async with hosting(place) as at:
        row = await at.session()
    await wait_until(lambda: not session_processes(row["id"]), "the program to be gone", 5)
    assert (row["status"], row["error"]) == ("cancelled", "it was cancelled")
    assert "Traceback" not in butler.log.read_text()


# The tool


SPECIFIED_TOOLS = 19


async def names(client):
    return {tool.name for tool in await client.list_tools()}


async def test_agents_see_the_tool_only_where_the_configuration_shows_it(folder, hosting):
    """By default, agents see the tools of the specification."""
    async with hosting(folder(probe=False)) as at, Client(at.server.mcp) as client:
        by_default = await names(client)
    async with hosting(folder(TOOL, probe=False)) as at, Client(at.server.mcp) as client:
        more = await names(client)
    assert len(by_default) == SPECIFIED_TOOLS
    assert more == {*by_default, "trigger"}


async def test_a_session_is_not_offered_the_tool_and_can_not_start_another(folder, hosting, tenant):
    place = write_program(folder(TOOL), TOOL_CALLER)
    async with hosting(place) as at:
        done = await at.call_in_session(["trigger", {"prompt": "Another one."}], caller=at.caller(tenant))
        assert len(await at.sessions(tenant)) == 1
    assert done["results"][0]["isError"]
    assert "there is no such tool" in done["results"][0]["content"][0]["text"]


@pytest.fixture
def triggering(listening, hosting):
    """A butler with the trigger tool, and a client."""

    @asynccontextmanager
    async def run(place, **options):
        async with listening(place, **options) as site, Client(site.mcp) as client:
            yield site, client

    return run


async def test_an_agent_has_the_butler_think_and_reads_its_answer(folder, triggering, tenant):
    place = write_program(folder(TOOL + tenant_config(tenant), memory=False), "echo \"Done: $(sed -n '$p')\"")
    async with triggering(place) as (_, client):
        result = (await client.call_tool("trigger", {"prompt": "Order tea"})).structured_content
        again = (await client.call_tool("trigger", {"session_id": result["session_id"]})).structured_content
    assert (result["status"], result["answer"]) == ("succeeded", "Done: Order tea\n")
    assert again == result


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "invalid_input: prompt is blank"),
        ({"prompt": " \n"}, "invalid_input: prompt is blank"),
        ({"session_id": "the last one"}, "invalid_input: session_id is not a UUID"),
        ({"session_id": "6f1d2c1e-0000-4000-8000-000000000000"}, "not_found: there is no session 6f1d2c1e"),
        ({"prompt": "Go on"}, "unavailable: "),
    ],
)
async def test_an_agent_is_told_why_nothing_came_of_it(folder, triggering, arguments, expected):
    place = write_program(folder(TOOL, memory=False), "echo 'out of tea' >&2; exit 3")
    async with triggering(place) as (_, client):
        refused = await client.call_tool("trigger", arguments, raise_on_error=False)
    assert refused.is_error
    assert refused.content[0].text.startswith(expected)


async def test_another_tenant_can_not_read_how_a_session_stands(folder, listening, keyring):
    place = write_program(folder(f'{TOOL}[butler.auth]\nmode = "keys"\n', memory=False), "echo a private answer")
    one, other = f"t-{uuid4().hex}", f"t-{uuid4().hex}"
    async with listening(place) as site, keyring() as ring:
        keys = [await ring.make(tenant) for tenant in (one, other)]
        result = (await site.call(keys[0], "trigger", prompt="Go on")).json()["result"]["structuredContent"]
        refused = (await site.call(keys[1], "trigger", session_id=result["session_id"])).json()["result"]
        known = (await site.call(keys[0], "trigger", session_id=result["session_id"])).json()["result"]
    assert known["structuredContent"]["answer"] == "a private answer\n"
    assert refused["isError"]
    assert "not_found" in refused["content"][0]["text"]
    assert "private" not in json.dumps(refused)


async def test_a_long_session_answers_that_it_runs_in_time_and_what_came_of_it_later(folder, triggering, tenant):
    """Calls time out quickly: without the id, an agent would start the session again."""
    limits = "[butler.limits]\ncall_timeout_seconds = 3\n"
    place = folder(TOOL + tenant_config(tenant) + limits, memory=False)
    write_program(place, "while [ ! -e go ]; do sleep 0.05; done; echo at last")
    async with triggering(place) as (_, client):
        result = (await client.call_tool("trigger", {"prompt": "Take your time"})).structured_content
        assert result == {"session_id": result["session_id"], "status": "running"}
        query = {"session_id": result["session_id"]}
        assert (await client.call_tool("trigger", query)).structured_content == result
        (place / "go").touch()

        async def answered():
            now = (await client.call_tool("trigger", query)).structured_content
            return now if now["status"] != "running" else None

        assert await wait_until(answered, "the session to end") == {
            **query,
            "status": "succeeded",
            "answer": "at last\n",
        }


async def test_an_agent_that_asks_for_too_much_is_told_so(folder, triggering, tenant):
    sessions = f"{THINK_RUNTIME}[butler.sessions]\ntrigger_tool = true\nmax_concurrent = 1\nmax_queued = 0\n"
    place = write_program(folder(sessions + tenant_config(tenant), memory=False), LOGGING_PROGRAM)
    async with triggering(place) as (site, client):
        first = asyncio.ensure_future(site.call(tool="trigger", prompt="0\n"))
        await wait_until(lambda: log(place), "the first to run")
        refused = await client.call_tool("trigger", {"prompt": "1\n"}, raise_on_error=False)
        (place / "go").touch()
        await first
    assert refused.is_error
    assert refused.content[0].text.startswith("overloaded: ")


async def test_a_record_that_is_already_there_is_not_taken_over(folder, hosting, tenant):
    """A session that was marked as lost too early gets its real outcome."""
    place = write_program(folder(sessions_config(), memory=False), LOGGING_PROGRAM)
    session = uuid4()
    async with hosting(place) as at:
        running = asyncio.ensure_future(at.spawn("0\n", at.caller(tenant), session_id=session))
        await wait_until(lambda: log(place), "the program to run")
        async with at.butler.database.transaction(at.caller(tenant)) as tx:
            await tx.execute("update sessions set status = 'lost', finished_at = now() where id = $1", session)
        (place / "go").touch()
        await running
        row = await at.session(tenant)
    assert (row["status"], row["answer"], row["error"]) == ("succeeded", "did 0\n", None)
