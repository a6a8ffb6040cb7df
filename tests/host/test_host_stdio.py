"""A butler process over stdio and over HTTP."""

import json
import signal
import sys
import time

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

ERAS = ("auto", "legacy")
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number, tool, **arguments):
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def send(process, *messages):
    for message in messages:
        process.popen.stdin.write(json.dumps(message) + "\n")
    process.popen.stdin.flush()


def receive(process):
    return json.loads(process.popen.stdout.readline())


def initialize(process):
    send(process, INITIALIZE)
    assert receive(process)["result"]["serverInfo"]
    send(process, INITIALIZED)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_talks_to_a_butler_over_stdio(folder, variables, tmp_path, era):
    arguments = ["-m", "probe", str(folder('[butler.auth]\ntenant = "home"')), "--stdio"]
    transport = StdioTransport(
        sys.executable, arguments, env=variables, keep_alive=False, log_file=tmp_path / "stdio.log"
    )
    async with Client(transport, mode=era) as client:
        who = (await client.call_tool("probe_whoami", {})).structured_content
        written = await client.call_tool("probe_write", {"text": "over stdio"})
    assert (who["tenant"], who["actor"]) == ("home", "local")
    assert written.structured_content["rows"] >= 1


@pytest.mark.parametrize("era", ERAS)
async def test_the_command_itself_serves_over_stdio(folder, variables, tmp_path, era):
    arguments = ["-m", "butlers.cli", "run", str(folder(probe=False)), "--stdio"]
    transport = StdioTransport(
        sys.executable, arguments, env=variables, keep_alive=False, log_file=tmp_path / "stdio.log"
    )
    async with Client(transport, mode=era) as client:
        await client.list_tools()
        assert client.is_connected()


@pytest.mark.parametrize("mode", ["local", "keys"])
def test_stdout_has_nothing_but_the_protocol_and_the_end_of_stdin_ends_it(folder, process, mode):
    """Over stdio no key is required."""
    butler = process(folder(f'[butler.auth]\nmode = "{mode}"'), "--stdio", BUTLERS_LOG="debug")
    initialize(butler)
    send(butler, call(2, "probe_whoami"), call(3, "probe_fail", how="whisper"))
    answers = {answer["id"]: answer["result"] for answer in (receive(butler), receive(butler))}
    butler.popen.stdin.close()
    rest = butler.popen.stdout.read()
    assert butler.popen.wait(15) == 0
    assert [line for line in rest.splitlines() if json.loads(line)["jsonrpc"] != "2.0"] == []
    assert answers[2]["structuredContent"]["tenant"] == "default"
    assert answers[3]["isError"]
    log = butler.log.read_text()
    assert "outcome=internal" in log
    assert "whisper" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_although_the_client_is_still_there(folder, process, number):
    butler = process(folder(), "--stdio")
    initialize(butler)
    started = time.monotonic()
    assert butler.end(number, 15) == 0
    assert time.monotonic() - started < 10
    assert "Traceback" not in butler.log.read_text()


def test_a_call_that_is_under_way_is_answered_before_a_signal_ends_it(folder, process):
    butler = process(folder(), "--stdio")
    initialize(butler)
    send(butler, call(2, "probe_write", text="finish me", seconds=1), call(3, "probe_whoami"))
    assert receive(butler)["id"] == 3
    assert butler.end(seconds=15) == 0
    assert receive(butler)["result"]["structuredContent"]["rows"] >= 1


def test_a_second_signal_does_not_wait_for_the_call(folder, process):
    butler = process(folder(), "--stdio")
    initialize(butler)
    send(butler, call(2, "probe_sleep", seconds=50), call(3, "probe_whoami"))
    assert receive(butler)["id"] == 3
    started = time.monotonic()
    butler.popen.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    assert butler.popen.poll() is None
    butler.end(seconds=15)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_talks_to_a_process_over_http(folder, process, era):
    butler = process(folder())
    async with Client(butler.ready(), mode=era) as client:
        who = (await client.call_tool("probe_whoami", {})).structured_content
        tools = await client.list_tools()
    assert who["tenant"] == "default"
    assert "probe_write" in {tool.name for tool in tools}
    assert butler.end() == 0
    assert butler.popen.stdout.read() == ""
