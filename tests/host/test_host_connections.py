"""HTTP connections: time limits for clients, the limit on their number, and framing that is refused."""

import asyncio
import contextlib
import json
import resource
import time
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from butlers import app
from butlers.host import http
from butlers.host.connections import (
    HEALTH_CONNECTIONS,
    MAX_CHUNKS,
    MAX_HEADERS,
    ConnectionLimits,
    limits_for_sessions,
    limits_from_config,
)
from probe import MODULES

LIMITS = ConnectionLimits(max_connections=16, head_seconds=0.4, body_seconds=0.4, keep_alive_seconds=1)
GET = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def health(_: Request) -> Response:
    return Response("ready")


async def read(request: Request) -> Response:
    return Response(await request.body())


async def slow(_: Request) -> Response:
    await asyncio.sleep(5)
    return Response()


async def large(_: Request) -> Response:
    return Response(b"x" * 50_000_000)


ROUTES = {"/health": health, "/read": read, "/slow": slow, "/large": large}


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits = LIMITS) -> AsyncIterator[int]:
    """Serve a small application and yield its port."""
    application = Starlette(routes=[Route(path, page, methods=["GET", "POST"]) for path, page in ROUTES.items()])
    with http.bind_socket("127.0.0.1", 0) as listener:
        async with http.serve_in_background(application, listener, limits):
            yield listener.getsockname()[1]


@contextlib.asynccontextmanager
async def connected(port: int, *start: bytes, address: str = "127.0.0.1") -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        for part in start:
            writer.write(part)
        yield reader, writer
    finally:
        writer.transport.abort()


async def until_closed(reader: asyncio.StreamReader, seconds: float = 4) -> bytes:
    """Return what the server sends until it closes the connection; fail if it does not."""
    received = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(seconds):
            while part := await reader.read(65536):
                received += part
    return received


async def ask(port: int, request: bytes) -> bytes:
    """Return the status line of the answer, or nothing if the connection is closed."""
    async with connected(port, request) as (reader, _):
        return await reader.readline()


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send one byte at a time for as long as the connection is open."""
    with contextlib.suppress(ConnectionError):
        while not writer.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"", b""),
        (b"P", b"HTTP/1.1 408 Request Timeout"),
        (b"GET /health HTTP/1.1\r\nX: ", b"HTTP/1.1 408 Request Timeout"),
        (POST, b"HTTP/1.1 408 Request Timeout"),
        (POST + b"ab", b"HTTP/1.1 408 Request Timeout"),
    ],
    ids=["nothing", "one byte", "half a head", "no body", "half a body"],
)
async def test_row_41_a_request_that_does_not_arrive_in_time_ends_its_connection(start, answer):
    async with serving() as port, connected(port, start) as (reader, _):
        started = time.monotonic()
        received = await until_closed(reader)
        assert 0.3 < time.monotonic() - started < 3
    assert received.partition(b"\r\n")[0] == answer


@pytest.mark.parametrize(
    "start",
    [b"GET /health HTTP/1.1\r\nX: ", b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"],
    ids=["head", "body"],
)
async def test_row_41_one_byte_at_a_time_does_not_extend_the_limit(start):
    async with serving() as port, connected(port, start) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 408")
        dripping.cancel()


async def test_a_body_that_is_late_after_its_answer_ends_the_connection():
    refused = b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 9999\r\n\r\n"
    async with serving() as port, connected(port, refused) as (reader, writer):
        dripping = asyncio.create_task(drip(writer))
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 404")
        dripping.cancel()


@pytest.mark.parametrize("after", [b"", b"G"], ids=["nothing", "one byte"])
async def test_a_connection_that_stays_idle_after_an_answer_is_closed(after):
    async with serving() as port, connected(port, GET) as (reader, writer):
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        await asyncio.sleep(0.5)
        writer.write(after)
        assert b"ready" in await until_closed(reader)


async def test_a_connection_serves_many_requests_and_pipelined_ones_in_order():
    async with serving() as port, connected(port, GET * 3 + POST + b"abcd" + GET) as (reader, writer):
        received = b""
        while received.count(b"ready") < 4:
            received += await asyncio.wait_for(reader.read(65536), 3)
        assert b"abcd" in received.rpartition(b"ready")[0]
        await asyncio.sleep(0.6)
        writer.write(GET)
        assert await asyncio.wait_for(reader.readline(), 3) == b"HTTP/1.1 200 OK\r\n"


async def test_a_client_that_does_not_read_its_answer_is_disconnected():
    async with serving() as port, connected(port, b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n") as (reader, writer):
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await asyncio.sleep(1)
        writer.transport.resume_reading()
        assert len(await until_closed(reader)) < 50_000_000


CHUNKED = b"POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + GET,
        CHUNKED.replace(b"Host", b"Content-Length: 4\r\nHost") + b"\r\n0\r\n\r\n" + GET,
        CHUNKED + b"\r\n" + b"1\r\na\r\n" * (MAX_CHUNKS + 1),
        GET.replace(b"Host", b"A: b\r\n" * MAX_HEADERS + b"Host"),
        b"\x16\x03\x01\r\n\r\n",
    ],
    ids=["length last", "length first", "tiny chunks", "many headers", "TLS"],
)
async def test_row_41_ambiguous_or_costly_framing_is_refused_and_ends_the_connection(request_bytes):
    async with serving() as port, connected(port, request_bytes) as (reader, _):
        received = await until_closed(reader)
    assert received.startswith(b"HTTP/1.1 400")
    assert b"ready" not in received, "what follows is not taken for a request"


async def test_a_thousand_chunks_are_read():
    async with serving() as port:
        answer = await ask(port, CHUNKED + b"\r\n" + b"1\r\na\r\n" * 1000 + b"0\r\n\r\n")
    assert answer == b"HTTP/1.1 200 OK\r\n"


async def test_row_41_at_the_limit_the_connection_that_waits_longest_is_closed_with_one_warning(caplog):
    async with serving(_patient()) as port, contextlib.AsyncExitStack() as stack:
        waiting = [await stack.enter_async_context(connected(port, b"P")) for _ in range(16)]
        await asyncio.sleep(0.1)
        for number in range(3):
            reader, _ = await stack.enter_async_context(connected(port, GET))
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            assert await until_closed(waiting[number][0]) == b""
        assert await ask(port, POST + b"abcd") == b"HTTP/1.1 200 OK\r\n"
        assert not waiting[-1][0].at_eof()
    warnings = [record.getMessage() for record in caplog.records if record.name == "butlers.http"]
    assert len(warnings) == 1
    assert warnings[0].startswith("the limit of connections is reached")


async def test_row_41_an_address_with_many_idle_connections_loses_them_first():
    async with serving(_patient()) as port, contextlib.AsyncExitStack() as stack:
        neighbour = await stack.enter_async_context(connected(port, b"P", address="127.0.0.2"))
        waiting = [await stack.enter_async_context(connected(port, b"P")) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert await until_closed(waiting[0][0]) == b""
        neighbour[1].write(b"OST /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await neighbour[0].readline() == b"HTTP/1.1 200 OK\r\n"


async def test_row_41_when_all_connections_are_busy_only_health_is_answered():
    async with serving(_patient()) as port, contextlib.AsyncExitStack() as stack:
        for _ in range(16):
            await stack.enter_async_context(connected(port, SLOW))
        await asyncio.sleep(0.2)
        # A client that only connects does not use up the reserve either.
        for _ in range(HEALTH_CONNECTIONS + 4):
            await stack.enter_async_context(connected(port))
        assert await ask(port, GET) == b"HTTP/1.1 200 OK\r\n"
        assert await ask(port, POST + b"abcd") == b"HTTP/1.1 503 Service Unavailable\r\n"
        async with connected(port, GET) as (reader, _):
            assert b"connection: close" in await until_closed(reader)


def _patient() -> ConnectionLimits:
    return ConnectionLimits(max_connections=16, head_seconds=30, body_seconds=30, keep_alive_seconds=5)


def test_the_limits_are_those_of_the_configuration(folder):
    place = folder(
        "[butler.limits]\nmax_connections = 20\nhead_timeout_seconds = 1.5\nbody_timeout_seconds = 2.5\n"
        "keep_alive_seconds = 3"
    )
    config = app.load_configuration(place, MODULES).butler
    assert limits_from_config(config) == ConnectionLimits(20, 1.5, 2.5, 3)


def test_connections_leave_descriptors_to_the_database_and_to_sessions(folder):
    place = folder("[butler.limits]\nmax_connections = 60000\n[butler.sessions]\nmax_concurrent = 4")
    config = app.load_configuration(place, MODULES).butler
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
        limits, for_sessions = limits_from_config(config), limits_for_sessions(config)
        assert limits.max_connections + for_sessions.max_connections + config.database.pool_size < 900
        assert limits.max_connections > 500
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        assert limits_from_config(config).max_connections == 16
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_butler_has_the_limits(folder, listening):
    place = folder("[butler.limits]\nhead_timeout_seconds = 0.3\nbody_timeout_seconds = 0.4")
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    async with listening(place) as site:
        port = int(site.url.rsplit(":", 1)[1])
        for start in (b"P", head + b"Content-Length: %d\r\n\r\n" % len(message) + message[:-1]):
            async with connected(port, start) as (reader, _):
                assert (await until_closed(reader)).startswith(b"HTTP/1.1 408")
        assert (await site.call()).status_code == 200
