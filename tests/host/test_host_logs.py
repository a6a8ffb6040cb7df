"""Content of a butler's log, and content it must not have."""

import json
import logging

import httpx2
import pytest
from fastmcp import Client

from butlers.host.logs import ConsoleFormatter, JsonFormatter

SECRET_TEXT = "a-memory-nobody-else-may-read"


def record(message="call", error=None, **extra):
    exc_info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("butlers.calls", logging.INFO, "x.py", 1, message, (), exc_info)
    vars(made).update(extra)
    return made


def failed(error):
    try:
        raise error
    except type(error) as caught:
        return caught


def test_a_console_line_is_one_line_whatever_a_field_holds():
    line = ConsoleFormatter().format(record(actor="a\nforged\r\x1b[31m\x9b\u202e\udc80", outcome=None))
    assert len(line.splitlines()) == 1
    assert line.endswith(r"info    call  actor=a\nforged\r\x1b[31m\x9b\u202e\udc80")


def test_a_json_line_is_one_object_whatever_a_field_holds():
    line = JsonFormatter().format(record(actor="a\n\x1b\u2028\udc80", ms=1.5, other=object()))
    assert len(line.splitlines()) == 1
    assert line.isascii()
    parsed = json.loads(line)
    assert (parsed["message"], parsed["level"], parsed["logger"]) == ("call", "info", "butlers.calls")
    assert (parsed["actor"], parsed["ms"]) == ("a\n\x1b\u2028\udc80", 1.5)


@pytest.mark.parametrize("formatter", [ConsoleFormatter(), JsonFormatter()])
def test_a_traceback_has_places_and_kinds_and_no_words(formatter):
    error = failed(ValueError(SECRET_TEXT))
    error.__cause__ = failed(KeyError(SECRET_TEXT))
    line = formatter.format(record("internal", error))
    assert SECRET_TEXT not in line
    assert "test_host_logs.py" in line
    assert "ValueError" in line
    assert "KeyError" in line


@pytest.mark.parametrize("form", ["console", "json"])
async def test_the_libraries_are_quiet_and_the_butler_is_heard(folder, running, logging_as, capfd, form):
    logging_as("debug", form)
    for name in ("fastmcp", "mcp.server", "uvicorn.error", "uvicorn.access", "asyncpg", "somebody.else"):
        logging.getLogger(name).info("chatter of %s", name)
    async with running(folder()) as server, Client(server.mcp) as client:
        await client.call_tool("probe_write", {"text": SECRET_TEXT})
    lines = capfd.readouterr().err.splitlines()
    assert len([line for line in lines if "probe_write" in line]) == 1
    assert not [line for line in lines if "chatter" in line or SECRET_TEXT in line]


async def test_a_process_logs_calls_in_json_and_neither_arguments_nor_keys(folder, process, keyring):
    butler = process(folder('[butler.auth]\nmode = "keys"'), BUTLERS_LOG="debug", BUTLERS_LOG_FORMAT="json")
    address = butler.ready()
    async with keyring() as ring:
        key = await ring.make("acme")
    for era in ("auto", "legacy"):
        async with Client(address, auth=key, mode=era) as client:
            await client.call_tool("probe_write", {"text": SECRET_TEXT})
            await client.call_tool("probe_write", {"text": SECRET_TEXT, SECRET_TEXT: 1}, raise_on_error=False)
            await client.call_tool("probe_fail", {"how": SECRET_TEXT}, raise_on_error=False)
            await client.call_tool("probe_fail", {"how": "constraint"}, raise_on_error=False)
            await client.call_tool(SECRET_TEXT, {}, raise_on_error=False)
    async with httpx2.AsyncClient() as stranger:
        answer = await stranger.post(address, json={}, headers={"Authorization": f"Bearer {key}x"})
        assert answer.status_code == 401
    assert butler.end() == 0
    log = butler.log.read_text()
    assert SECRET_TEXT not in log
    assert key.split("_", 2)[2] not in log
    assert "Bearer" not in log
    lines = [json.loads(line) for line in log.splitlines() if not line.startswith("ready: ")]
    calls = [line for line in lines if line["message"] == "call"]
    assert {(call["tool"], call["outcome"]) for call in calls} == {
        ("probe_write", "ok"),
        ("probe_write", "invalid_input"),
        ("probe_fail", "internal"),
        ("unknown", "not_found"),
    }
    assert {call["tenant"] for call in calls} == {"acme"}
    assert {call["actor"] for call in calls} == {"robot"}
    references = {line["request_id"] for line in lines if line["message"] == "internal"}
    assert references <= {call["request_id"] for call in calls}
    assert all("probe.py" in line["traceback"] for line in lines if line["message"] == "internal")
    assert {line["logger"].split(".")[0] for line in lines} == {"butlers"}


async def test_an_elevated_call_says_where_it_came_from(folder, listening, keyring, caplog):
    caplog.set_level("INFO", "butlers")
    async with listening(folder('[butler.auth]\nmode = "keys"')) as site, keyring() as ring:
        await site.call(await ring.make("acme", roles=("admin",), elevated=True), tenant_id="globex")
    line = next(each for each in caplog.records if each.getMessage() == "call")
    assert (line.tenant, line.elevated_from) == ("globex", "acme")


def test_logs_go_to_stderr(logging_as, capfd):
    logging_as("info", "console")
    logging.getLogger("butlers").info("hello")
    logging.getLogger("butlers").debug("whisper")
    output = capfd.readouterr()
    assert output.out == ""
    assert "hello" in output.err
    assert "whisper" not in output.err
