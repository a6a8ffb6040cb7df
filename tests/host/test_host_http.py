"""The HTTP layer: hosts, origins, body sizes, health, request ids and ports."""

import asyncio
import json
import socket

import httpx2
import pytest

from butlers.errors import ConfigurationFault, Overloaded, Unavailable
from butlers.host import http
from butlers.host.limits import RateLimit

PATHS = ("/mcp", "/health", "/metrics", "/")
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def test_row_34_a_forged_host_is_misdirected_on_every_path(folder, listening):
    async with listening(folder()) as site:
        for path in PATHS:
            for host in (
                "evil.example",
                "evil.example:80",
                "127.0.0.1.evil.example",
                "localhost@evil.example",
                "[::1",
            ):
                assert (await site.get(path, host=host)).status_code == 421, (path, host)


async def test_row_34_a_page_of_another_origin_is_refused_on_every_path(folder, listening):
    async with listening(folder()) as site:
        port = int(site.url.rsplit(":", 1)[1])
        foreign = ["https://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"https://127.0.0.1:{port}"]
        for path in PATHS:
            for origin in (*foreign, "http://localhost"):
                assert (await site.get(path, origin=origin)).status_code == 403, (path, origin)


async def test_a_page_of_its_own_may_call(folder, listening):
    async with listening(folder()) as site:
        assert (await site.get("/health", origin=site.url)).status_code == 200
        answer = await site.send(
            "POST", "/mcp", headers={**ACCEPT, "Origin": site.url}, content=json.dumps(call("probe_whoami"))
        )
    assert answer.status_code == 200


async def test_hosts_and_origins_that_are_allowed_get_in(folder, listening):
    allowed = '[butler.http]\nallowed_hosts = ["butler.example"]\nallowed_origins = ["https://page.example"]\n'
    async with listening(folder(allowed)) as site:
        assert (await site.get("/health", host="butler.example")).status_code == 200
        assert (await site.get("/health", host="Butler.Example:8443")).status_code == 200
        for host in ("butler.example", site.url.removeprefix("http://")):
            headers = {**ACCEPT, "Host": host, "Origin": "https://page.example"}
            answer = await site.send("POST", "/mcp", headers=headers, content=json.dumps(call("probe_whoami")))
            assert answer.status_code == 200, host
        assert (await site.get("/health", host="other.example")).status_code == 421
        assert (await site.get("/health", origin="https://other.example")).status_code == 403


def call(tool, **arguments):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


async def alive(site):
    return (await site.call()).status_code == 200


async def test_row_27_a_body_of_8_mib_is_too_large_announced_or_not(folder, listening):
    body = b'{"jsonrpc": "2.0", "padding": "' + b"x" * (8 << 20) + b'"}'

    async def in_pieces():
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    async with listening(folder()) as site:
        assert (await site.send("POST", "/mcp", headers=ACCEPT, content=body)).status_code == 413
        try:
            # The server may answer and disconnect before the whole body is sent.
            chunked = await site.send("POST", "/mcp", headers=ACCEPT, content=in_pieces())
        except (httpx2.WriteError, httpx2.RemoteProtocolError):
            chunked = None
        assert chunked is None or chunked.status_code == 413
        assert await alive(site)


async def test_the_limit_of_a_body_can_be_set(folder, listening):
    async with listening(folder("[butler.limits]\nmax_body_bytes = 2048")) as site:
        assert (await site.call(tool="probe_write", text="a" * 90)).status_code == 200
        assert (await site.call(tool="probe_write", text="a" * 3000)).status_code == 413

        async def in_pieces():
            for _ in range(30):
                yield b"x" * 100

        assert (await site.send("POST", "/mcp", headers=ACCEPT, content=in_pieces())).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 5000 + b"]" * 5000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        json.dumps(call("probe_write")).encode().replace(b"{}", b'{"text": ' + b"[" * 5000 + b"]" * 5000 + b"}"),
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}',
        b"\xff",
        b"",
        b"not json",
        b"null",
    ],
    ids=["lists", "objects", "an argument", "not UTF-8 inside", "not UTF-8", "nothing", "no JSON", "null"],
)
async def test_row_27_a_body_that_is_no_message_is_refused_and_the_butler_goes_on(folder, listening, body):
    async with listening(folder()) as site:
        answer = await site.send("POST", "/mcp", headers=ACCEPT, content=body)
        assert 400 <= answer.status_code < 500
        assert await alive(site)


async def test_numbers_that_are_none_are_refused_by_name(folder, listening):
    async with listening(folder()) as site:
        body = json.dumps(call("probe_sleep", seconds=0)).replace('"seconds": 0', '"seconds": NaN')
        answer = await site.send("POST", "/mcp", headers=ACCEPT, content=body)
    assert answer.json()["result"]["content"][0]["text"].startswith("invalid_input: seconds: ")


async def test_health_says_which_butler_is_ready(folder, listening):
    async with listening(folder()) as site:
        answer = await site.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ready", "butler": site.server.config.name})


async def test_metrics_are_open_on_loopback_without_keys(folder, listening):
    async with listening(folder()) as site:
        await site.call()
        answer = await site.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'butlers_tool_calls_total{outcome="ok",tool="probe_whoami"} 1.0' in answer.text


async def test_metrics_leave_out_what_a_module_can_not_tell(folder, listening, wire, by_wire):
    async with listening(folder()):
        pass
    async with listening(folder(), env=by_wire) as site:
        assert "episodes_pending" in (await site.get("/metrics")).text
        await wire.cut()
        answer = await site.get("/metrics")
    assert answer.status_code == 200
    assert "episodes_pending" not in answer.text
    assert "butlers_pool_connections" in answer.text


async def test_a_request_keeps_the_id_its_client_gave_it(folder, listening):
    async with listening(folder()) as site:
        for request_id, is_kept in (("abc-1", True), ("a b", False), ("x" * 129, False)):
            headers = {**ACCEPT, "X-Request-Id": request_id}
            answer = await site.send("POST", "/mcp", headers=headers, content=json.dumps(call("probe_whoami")))
            assert (answer.json()["result"]["structuredContent"]["request_id"] == request_id) is is_kept


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "butler.example"])  # noqa: S104
async def test_without_keys_it_listens_on_loopback_only(folder, running, host):
    with pytest.raises(ConfigurationFault, match="is not a loopback address"):
        async with running(folder(f'[butler.http]\nhost = "{host}"')):
            pass


def test_a_port_that_is_taken_is_said_so():
    with http.bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unavailable, match=f"can't listen on 127.0.0.1:{port}"):
            http.bind_socket("127.0.0.1", port).__enter__()


def test_a_bucket_fills_again_at_its_rate():
    limit = RateLimit(calls_per_second=2, burst=2)
    limit.take("acme", 0)
    limit.take("acme", 0)
    with pytest.raises(Overloaded):
        limit.take("acme", 0.4)
    limit.take("acme", 0.5)
    with pytest.raises(Overloaded):
        limit.take("acme", 0.5)
    limit.take("acme", 100)
    limit.take("acme", 100)
    with pytest.raises(Overloaded):
        limit.take("acme", 100)


def test_the_limiter_forgets_whom_it_has_not_seen_for_longest():
    limit = RateLimit(calls_per_second=1, burst=1)
    for number in range(10_000):
        limit.take(f"t{number}", 0)
    with pytest.raises(Overloaded):
        limit.take("t0", 0)
    for number in range(10_000, 12_000):
        limit.take(f"t{number}", 0)
    assert len(limit._buckets) == 10_000
    with pytest.raises(Overloaded):
        limit.take("t0", 0)
    limit.take("t1", 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_answer_in_two_parts_does_not_wait_for_an_acknowledgement(host):
    reached = asyncio.get_running_loop().create_future()
    with http.bind_socket(host, 0) as listener:
        port = listener.getsockname()[1]
        accept = lambda _, writer: reached.set_result(writer)  # noqa: E731
        async with await asyncio.start_server(accept, sock=listener):
            _, client_writer = await asyncio.open_connection(host, port)
            server_writer = await reached
            option = server_writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for writer in (client_writer, server_writer):
                writer.close()
    assert option != 0
