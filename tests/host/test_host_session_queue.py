"""Turns of tenants in the queue of sessions, and each tenant's share of it (row 44)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from butlers.errors import Overloaded
from host.session_fixtures import LOGGING_PROGRAM, log, sessions_config, started_lines, wait_until, write_program


@pytest.fixture
def tenants(tenant):
    """Names of tenants by a letter."""
    return {letter: f"{tenant}-{letter}" for letter in "abcde"}


@asynccontextmanager
async def request_sessions(at, place, tenants, *names):
    """Request a session for each name, such as a0 for tenant a; let them all end with the block."""
    tasks = {name: asyncio.ensure_future(at.spawn(f"{name}\n", at.caller(tenants[name[0]]))) for name in names}
    try:
        yield tasks
    finally:
        (place / "go").touch()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def wait_for_starts(place, number):
    await wait_until(lambda: len(started_lines(place)) >= number, f"{number} sessions to start")
    return started_lines(place)


async def finish(place, name):
    """Let a running session end."""
    (place / f"go{name}").touch()
    await wait_until(lambda: f"-{name}" in log(place), f"{name} to end")


async def test_tenants_that_wait_take_turns(folder, hosting, tenants):
    place = write_program(folder(sessions_config(max_concurrent=1, max_queued=40), memory=False), LOGGING_PROGRAM)
    names = ("a0", "a1", "a2", "a3", "b0", "b1", "c0")
    async with hosting(place) as at, request_sessions(at, place, tenants, *names):
        for number in range(1, len(names)):
            await finish(place, (await wait_for_starts(place, number))[-1][1:])
        starts = await wait_for_starts(place, len(names))
    assert starts == ["+a0", "+b0", "+c0", "+a1", "+b1", "+a2", "+a3"]


async def test_the_tenant_with_the_fewest_running_sessions_is_next(folder, hosting, tenants):
    place = write_program(folder(sessions_config(max_concurrent=2, max_queued=40), memory=False), LOGGING_PROGRAM)
    async with hosting(place) as at, request_sessions(at, place, tenants, "a0", "a1", "a2", "a3", "b0", "b1"):
        await wait_for_starts(place, 2)
        await finish(place, "a0")
        assert (await wait_for_starts(place, 3))[2:] == ["+b0"]
        await finish(place, "b0")
        assert (await wait_for_starts(place, 4))[3:] == ["+b1"], "a has one running, b none"
        await finish(place, "b1")
        assert (await wait_for_starts(place, 5))[4:] == ["+a2"]


async def test_a_tenant_waits_with_at_most_half_of_the_places_the_others_leave(folder, hosting, tenants):
    place = write_program(folder(sessions_config(max_concurrent=1, max_queued=8), memory=False), LOGGING_PROGRAM)
    names = [f"{letter}{number}" for letter in "abcde" for number in range(6)]
    async with hosting(place) as at, request_sessions(at, place, tenants, *names) as tasks:
        await wait_for_starts(place, 1)
        await wait_until(lambda: sum(task.done() for task in tasks.values()) == 21, "the others to be refused")
        refused = {name: task.exception() for name, task in tasks.items() if task.done()}
        with pytest.raises(Overloaded, match="8 sessions are waiting already"):
            await at.spawn("e6\n", at.caller(tenants["e"]))
    accepted = "".join(name[0] for name in names if name not in refused)
    assert accepted == "aaaaa" + "bb" + "c" + "d", "one of a runs, the others wait"
    assert isinstance(refused["a5"], Overloaded)
    assert refused["a5"].message.startswith("4 sessions of this tenant are waiting")


async def test_row_44_a_tenant_that_asks_for_40_sessions_leaves_room_and_turns_to_another(folder, listening, keyring):
    limits = '[butler.auth]\nmode = "keys"\n[butler.limits]\ncall_timeout_seconds = 3\n'
    place = write_program(folder(sessions_config(trigger_tool="true") + limits, memory=False), LOGGING_PROGRAM)
    async with listening(place) as site, keyring() as ring:
        large, small = await ring.make("large"), await ring.make("small")

        async def trigger(key, name):
            return (await site.call(key, "trigger", prompt=f"{name}\n")).json()["result"]

        flood = asyncio.gather(*(trigger(large, f"large{number}") for number in range(40)))
        first = (await wait_for_starts(place, 2))[0][1:]
        beside = asyncio.ensure_future(trigger(small, "small"))
        answers, answer = await flood, await beside
        errors = [each["content"][0]["text"] for each in answers if each["isError"]]
        # On a busy machine an accepted call may reach its time limit; its session runs on.
        refused = [text for text in errors if not text.startswith("timeout: ")]
        assert answer["structuredContent"]["status"] == "running"
        await finish(place, first)
        assert (await wait_for_starts(place, 3))[2:] == ["+small"]
        (place / "go").touch()
        await wait_until(lambda: len(log(place)) == 2 * 13, "all accepted sessions to end")
    assert len(refused) == 40 - 12, "two run and half of the 20 places are taken"
    (message,) = set(refused)
    assert message.startswith("overloaded: 10 sessions of this tenant are waiting, which is its share of the queue.")
