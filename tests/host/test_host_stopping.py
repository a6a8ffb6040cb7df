"""Graceful stop: a butler finishes active calls (row 12)."""

import asyncio
import signal
import socket
import time
from contextlib import asynccontextmanager

import httpx2
import pytest

AT_ONCE = "[butler.limits]\ndrain_seconds = 0\n"


async def wait_served(address):
    """Return when a call that was just sent is being served."""
    async with httpx2.AsyncClient() as client:
        for _ in range(100):
            page = (await client.get(address.replace("/mcp", "/metrics"))).text
            if 'butlers_pool_connections{state="busy"} 1.0' in page:
                return
            await asyncio.sleep(0.05)
    raise AssertionError("the call never began")


@asynccontextmanager
async def start_call(address, tool, **arguments):
    """Start a call and yield the task of its answer."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=60) as client:
        sent = asyncio.create_task(client.post(address, json=message, headers=headers))
        await (wait_served(address) if tool == "probe_write" else asyncio.sleep(0.5))
        yield sent
        await asyncio.gather(sent, return_exceptions=True)


async def test_calls_in_flight_finish_and_are_answered(folder, process):
    butler = process(folder(AT_ONCE))
    address = butler.ready()
    async with (
        start_call(address, "probe_sleep", seconds=2) as waiting,
        start_call(address, "probe_write", text="finish", seconds=2) as writing,
    ):
        butler.popen.send_signal(signal.SIGTERM)
        assert (await waiting).json()["result"]["structuredContent"] == {"rows": 0}
        assert (await writing).json()["result"]["structuredContent"]["rows"] >= 1
    assert await asyncio.to_thread(butler.popen.wait, 15) == 0
    assert "Traceback" not in butler.log.read_text()


async def test_nobody_new_is_let_in_once_it_is_stopping(folder, process):
    butler = process(folder())
    address = butler.ready()
    async with start_call(address, "probe_write", text="finish", seconds=1.5) as writing:
        butler.popen.send_signal(signal.SIGINT)
        await asyncio.sleep(0.4)
        with pytest.raises(httpx2.ConnectError):
            async with httpx2.AsyncClient() as stranger:
                await stranger.get(address)
        assert (await writing).status_code == 200
    assert await asyncio.to_thread(butler.popen.wait, 15) == 0


def send(client, address, tool, **arguments):
    """Send one tool call on a connection of the client."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    return client.post(address, json=message, headers={"Accept": "application/json, text/event-stream"})


async def test_row_59_a_butler_drains_before_it_stops(folder, process):
    """Health says so to whoever asks, open connections are served, and new ones are sent elsewhere."""
    butler = process(folder("[butler.limits]\ndrain_seconds = 4"))
    address = butler.ready()
    health = address.replace("/mcp", "/health")
    async with httpx2.AsyncClient(timeout=20) as old, httpx2.AsyncClient(timeout=20) as new:
        assert (await old.get(health)).json()["status"] == "ready"
        butler.popen.send_signal(signal.SIGTERM)
        stopped = time.monotonic()
        await asyncio.sleep(0.3)
        served = await send(old, address, "probe_write", text="drained", seconds=0)
        assert served.json()["result"]["structuredContent"]["rows"] >= 1
        assert served.headers["connection"] == "close"
        for _ in range(3):
            answer = await new.get(health)
            assert (answer.status_code, answer.json()) == (503, {"status": "draining"})
            refused = await send(new, address, "probe_whoami")
            assert (refused.status_code, refused.text) == (503, "the butler is stopping")
            assert int(refused.headers["retry-after"]) > 0
        assert await asyncio.to_thread(butler.popen.wait, 15) == 0
        assert 3.9 < time.monotonic() - stopped < 15
        with pytest.raises(httpx2.ConnectError):
            await new.get(health)
    assert "Traceback" not in butler.log.read_text()


async def test_an_interrupted_butler_does_not_drain(folder, process):
    butler = process(folder("[butler.limits]\ndrain_seconds = 30"))
    butler.ready()
    started = time.monotonic()
    assert await asyncio.to_thread(butler.end, signal.SIGINT) == 0
    assert time.monotonic() - started < 10


async def test_a_second_signal_ends_the_draining(folder, process):
    butler = process(folder("[butler.limits]\ndrain_seconds = 30"))
    butler.ready()
    butler.popen.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.3)
    assert butler.popen.poll() is None
    started = time.monotonic()
    assert await asyncio.to_thread(butler.end, signal.SIGTERM) == 0
    assert time.monotonic() - started < 10


LONG = pytest.mark.parametrize(
    ("tool", "arguments"), [("probe_sleep", {}), ("probe_write", {"text": "never"})], ids=["waits", "writes"]
)


@LONG
async def test_a_second_signal_ends_it_at_once(folder, process, tool, arguments):
    butler = process(folder())
    async with start_call(butler.ready(), tool, **arguments, seconds=25):
        butler.popen.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.5)
        assert butler.popen.poll() is None
        started = time.monotonic()
        butler.popen.send_signal(signal.SIGTERM)
        await asyncio.to_thread(butler.popen.wait, 20)
        assert time.monotonic() - started < 8
    assert "Traceback" not in butler.log.read_text()


@LONG
async def test_a_call_longer_than_the_grace_time_is_cut(folder, process, tool, arguments):
    butler = process(folder(f"{AT_ONCE}grace_seconds = 1"))
    async with start_call(butler.ready(), tool, **arguments, seconds=25):
        started = time.monotonic()
        butler.popen.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(butler.popen.wait, 20) == 0
        assert 0.9 < time.monotonic() - started < 10
    assert "Traceback" not in butler.log.read_text()


def test_a_port_that_is_taken_ends_the_start_with_one_line(folder, process):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        butler = process(folder(probe=False), "--port", str(port), probe=False)
        assert butler.popen.wait(30) == 1
    lines = butler.log.read_text().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"butlers: can't listen on 127.0.0.1:{port}: Address already in use. Choose another")
