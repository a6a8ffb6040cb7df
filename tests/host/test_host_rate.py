"""The rate limit over HTTP and beside it, and the limit on the JSON values of a body."""

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import pytest
from fastmcp import Client
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from butlers.host.limits import MAX_JSON_VALUES, OVERLOADED_ERROR_CODE, count_json_values

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
METHODS = {
    "initialize": INITIALIZE,
    "ping": {},
    "tools/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "prompts/list": {},
    "resources/read": {"uri": "a://b"},
    "logging/setLevel": {"level": "info"},
    "nothing/known": {},
}


def limits(calls: int) -> str:
    """Return a configuration that allows a new tenant this many calls, and no more for a long time."""
    tenant = f'[butler.auth]\ntenant = "t{uuid4().hex[:8]}"\n'
    return f"{tenant}[butler.limits]\ncalls_per_second = 0.001\nburst = {calls}"


async def post(site, method: str, params: dict[str, Any] | None = None, **headers: str):
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}}
    return await site.send("POST", "/mcp", headers={**ACCEPT, **headers}, content=json.dumps(message))


async def post_modern(site, method: str, **params: Any):
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    return await post(site, method, {**params, "_meta": META}, **headers)


def is_overloaded(answer) -> bool:
    message = answer.json()
    error = message.get("error", {})
    assert message["id"] == 7
    return error.get("code") == OVERLOADED_ERROR_CODE and error["message"].startswith("overloaded: more than ")


@pytest.mark.parametrize("method", METHODS)
async def test_row_42_every_method_counts_towards_the_rate(folder, listening, method):
    async with listening(folder(limits(1))) as site:
        assert not is_overloaded(await post(site, method, METHODS[method]))
        assert is_overloaded(await post(site, method, METHODS[method]))
        assert is_overloaded(await post(site, "ping"))


@pytest.mark.parametrize("method", ["server/discover", "tools/list", "nothing/known"])
async def test_row_42_every_method_of_the_newer_protocol_counts_too(folder, listening, method):
    async with listening(folder(limits(1))) as site:
        assert not is_overloaded(await post_modern(site, method))
        assert is_overloaded(await post_modern(site, method))


async def test_a_tool_call_over_the_rate_fails_as_a_tool_call_and_counts_once(folder, listening):
    async with listening(folder(limits(4))) as site:
        for send in (post, post_modern) * 2:
            answer = await _whoami(send, site)
            assert not answer["isError"]
        for send in (post, post_modern):
            answer = await _whoami(send, site)
            assert answer["isError"]
            assert answer["content"][0]["text"].startswith("overloaded: more than 0.001 calls a second.")


async def _whoami(send, site) -> dict[str, Any]:
    call = {"name": "probe_whoami", "arguments": {"tenant_id": ""}}
    answer = await (send(site, "tools/call", **call) if send is post_modern else send(site, "tools/call", call))
    return answer.json()["result"]


async def test_notifications_count_and_are_not_refused(folder, listening):
    async with listening(folder(limits(2))) as site:
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        for _ in range(3):
            assert (await site.send("POST", "/mcp", headers=ACCEPT, content=note)).status_code == 202
        assert is_overloaded(await post(site, "ping"))


async def test_a_body_that_is_no_message_counts_and_a_batch_is_none(folder, listening):
    batch = json.dumps([{"jsonrpc": "2.0", "id": 1, "method": "ping"}] * 2)
    async with listening(folder(limits(2))) as site:
        for body in (batch, "no JSON"):
            assert (await site.send("POST", "/mcp", headers=ACCEPT, content=body)).status_code == 400
        assert is_overloaded(await post(site, "ping"))


async def test_messages_beside_http_count_too(folder, running):
    # The client sends two messages when it connects.
    async with running(folder(limits(3))) as server, Client(server.mcp, mode="legacy") as client:
        assert await client.ping()
        with pytest.raises(MCPError, match="overloaded: more than"):
            await client.ping()


async def test_each_16_kib_of_a_body_count_as_a_call(folder, listening):
    async with listening(folder(limits(20))) as site:
        assert not is_overloaded(await post(site, "ping", {"padding": "x" * 19 * 16384}))
        assert is_overloaded(await post(site, "ping"))


async def test_a_body_in_chunks_counts_by_its_size_too(folder, listening):
    message = {"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"padding": "x" * 19 * 16384}}

    async def chunks():
        yield json.dumps(message).encode()

    async with listening(folder(limits(20))) as site:
        assert not is_overloaded(await site.send("POST", "/mcp", headers=ACCEPT, content=chunks()))
        assert is_overloaded(await post(site, "ping"))


async def test_a_large_body_over_the_rate_is_refused_unread(folder, listening):
    async with listening(folder(limits(1))) as site:
        assert not is_overloaded(await post(site, "ping"))
        answer = await post(site, "ping", {"padding": "x" * 65536})
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")
        assert answer.json()["error"]["message"].startswith("overloaded: ")


async def test_a_request_without_a_credential_takes_nothing_from_a_rate(folder, listening, keyring):
    place = folder(limits(1).replace("[butler.auth]\n", '[butler.auth]\nmode = "keys"\n'))
    mine, other = (f"t{uuid4().hex[:8]}" for _ in range(2))
    async with listening(place) as site, keyring() as keys:
        for credential in (None, "wrong", f"butlers_{'0' * 8}-0000-0000-0000-{'0' * 12}_x"):
            assert (await site.call(credential)).status_code == 401
        assert not (await site.call(await keys.make(mine))).json()["result"]["isError"]
        assert (await site.call(await keys.make(mine))).json()["result"]["isError"]
        assert not (await site.call(await keys.make(other))).json()["result"]["isError"]


VALUES = [b"1", b'""', b"[]", b"{}", b'{"a":1}', b'"\\\\"', b'"\\",[{"']


@pytest.mark.parametrize("value", VALUES, ids=str)
async def test_row_42_a_body_of_too_many_values_is_too_large(folder, listening, value):
    values = b",".join([value] * (MAX_JSON_VALUES + 1))
    message = b'{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"list": [%b]}}' % values
    async with listening(folder()) as site:
        answer = await site.send("POST", "/mcp", headers=ACCEPT, content=message)
        assert (answer.status_code, answer.text) == (413, "a request may carry at most 10000 JSON values")
        assert not is_overloaded(await post(site, "ping"))


async def test_text_that_looks_like_json_is_one_value(folder, listening):
    text = json.dumps([{"said": 'a "b", \\ c'}] * 20_000)
    async with listening(folder()) as site:
        assert (await site.call(tool="probe_write", text=text)).status_code == 200


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"', "\\", '\\"', "[,{", '",']),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def separators(value: Any) -> int:
    """Return the brackets that open and the commas of a value."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(separators, inner))


@given(value=_JSON, is_ascii=st.booleans())
def test_values_are_counted_outside_strings_only(value, is_ascii):
    assert count_json_values(json.dumps(value, ensure_ascii=is_ascii).encode("utf-8", "replace")) == separators(value)


SHARE = '[butler.auth]\nmode = "keys"\n[butler.limits]\nmax_connections = 16\n'


async def test_row_55_a_tenant_whose_calls_keep_every_connection_busy_leaves_some_to_another(
    folder, listening, keyring
):
    async with listening(folder(SHARE)) as site, keyring() as keys:
        loud, quiet = await keys.make("loud"), await keys.make("quiet")
        busy = [asyncio.create_task(site.call(loud, "probe_sleep", seconds=3)) for _ in range(16)]
        await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
        for _ in range(3):
            started = time.monotonic()
            assert not (await site.call(quiet)).json()["result"]["isError"]
            assert time.monotonic() - started < 1
        assert sum(not call.done() for call in busy) == 12
        answers = [(await call).json()["result"] for call in busy]
        refused = {answer["content"][0]["text"] for answer in answers if answer["isError"]}
        assert refused == {"overloaded: more than 12 requests at once. Retry in a second, with fewer calls at once."}
        assert not (await site.call(loud)).json()["result"]["isError"], "the share is free again"
