"""Tokens of consolidation: a batch whose session never ran uses none, one that ended half-way those of its prompt."""

import asyncio
import signal
from contextlib import asynccontextmanager
from functools import partial

import pytest
from fastmcp import Client

from butlers.errors import Unavailable
from butlers.modules.memory.operations import consolidation
from host.session_fixtures import log, sessions_config, wait_until, write_program

# Logs `+hold` or `+work` for the prompt of consolidation, and ends when the file `go` exists.
PROGRAM = """
prompt=$(tail -n 1)
[ "$prompt" = hold ] || prompt=work
echo "+$prompt" >> log
while [ ! -e go ]; do sleep 0.02; done
"""
RUNS = "select status, input_tokens, output_tokens, tokens_estimated from consolidation_runs"
NO_SERVER = '[butler.runtime]\ntype = "openai"\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "none"\n'


@pytest.fixture
def place(folder, tenant):
    """Write a butler that runs one session at a time."""

    def write(runtime=None, **limits):
        runtime = runtime or sessions_config(trigger_tool="true", max_concurrent=1, **limits)
        return write_program(folder(f'{runtime}[butler.auth]\ntenant = "{tenant}"\n'), PROGRAM)

    return write


async def store_episode(at):
    await at.call_tool("memory_store_episode", content="drank tea", butler=at.butler.config.butler.name)


def consolidate(at):
    """Start a consolidation of the butler's tenant."""
    (memory,) = [module.state for module in at.butler.modules if module.name == "memory"]
    return asyncio.ensure_future(consolidation.consolidate(memory, at.caller()))


@asynccontextmanager
async def other_session(at, place):
    """Hold the only slot with another session."""
    holding = asyncio.ensure_future(at.spawn("hold\n"))
    try:
        await wait_until(lambda: log(place), "the other session to run")
        yield
    finally:
        (place / "go").touch()
        await holding


async def waiting_sessions(at):
    return [row for row in await at.sessions() if row["status"] == "waiting"]


async def only_run(at):
    """Return the status and the tokens of the only batch."""
    (run,) = await at.rows(RUNS)
    return run["status"], run["input_tokens"], run["output_tokens"], run["tokens_estimated"]


async def tokens_last_day(at):
    return (await at.call_tool("memory_stats"))["consolidation"]["tokens_last_day"]


async def test_a_batch_that_a_full_queue_refuses_uses_no_tokens(place, hosting):
    at_folder = place(max_queued=0)
    async with hosting(at_folder) as at:
        await store_episode(at)
        async with other_session(at, at_folder):
            answer = await consolidate(at)
        assert await only_run(at) == ("released", 0, 0, False)
        assert await tokens_last_day(at) == 0
    assert answer["tokens"] == {"input": 0, "output": 0, "estimated": False}


async def test_a_batch_without_a_model_server_uses_no_tokens(place, hosting):
    async with hosting(place(NO_SERVER)) as at:
        await store_episode(at)
        with pytest.raises(Unavailable, match="no model server answers"):
            await consolidate(at)
        assert await only_run(at) == ("released", 0, 0, False)


async def test_a_batch_that_is_cancelled_while_it_waits_uses_no_tokens(place, hosting):
    at_folder = place()
    async with hosting(at_folder) as at:
        await store_episode(at)
        async with other_session(at, at_folder):
            running = consolidate(at)
            await wait_until(lambda: waiting_sessions(at), "the batch to wait")
            running.cancel()
            await asyncio.wait({running})
        assert await only_run(at) == ("released", 0, 0, False)


async def test_a_batch_that_is_cancelled_while_it_runs_uses_the_tokens_of_its_prompt(place, hosting):
    at_folder = place()
    async with hosting(at_folder) as at:
        await store_episode(at)
        running = consolidate(at)
        await wait_until(lambda: log(at_folder), "the session to run")
        running.cancel()
        await asyncio.wait({running})
        status, used, *others = await only_run(at)
        assert (status, *others) == ("released", 0, True)
        assert await tokens_last_day(at) == used > 100


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "runs"])
async def test_a_butler_killed_in_a_batch_has_used_its_prompt_only_if_the_session_ran(place, hosting, process, waits):
    at_folder = place()
    async with hosting(at_folder) as at:
        await store_episode(at)
        butler = process(at_folder)
        calls = [("trigger", {"prompt": "hold\n"})] * waits + [("memory_run_consolidation", {})]
        tasks = []
        for number, (tool, arguments) in enumerate(calls, start=1):
            tasks.append(asyncio.ensure_future(call(butler.ready(), tool, arguments)))
            await wait_until(partial(has_sessions, at, number), "the session to be recorded")
        await wait_until(lambda: log(at_folder), "a session to run")
        butler.end(signal.SIGKILL)
        await asyncio.gather(*tasks, return_exceptions=True)
        status, used, *others = await only_run(at)
        (at_folder / "go").touch()
        assert await tokens_last_day(at) == used
    assert log(at_folder) == (["+hold"] if waits else ["+work"])
    assert (status, used > 100, *others) == ("running", not waits, 0, not waits)


async def call(address, tool, arguments):
    async with Client(address) as client:
        await client.call_tool(tool, arguments, raise_on_error=False)


async def has_sessions(at, number):
    return len(await at.sessions()) == number
