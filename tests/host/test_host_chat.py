"""The runtime for chat-completions servers, over real HTTP: requests, answers, errors and tool calls."""

import asyncio
import gzip
import json
import socket
import time
from typing import Any
from uuid import uuid4

import pytest
from fastmcp import Client
from pydantic import ValidationError

import models
from butlers.caller import Caller
from butlers.config import RuntimeConfig
from butlers.contract import Usage
from butlers.errors import Fault, SessionFailed, TimedOut, Unavailable
from butlers.host import runtimes
from butlers.host.runtimes.openai import MAX_TURNS, OpenAiRuntime
from butlers.host.runtimes.runtime import McpAccess, RuntimeResult, SessionTask
from butlers.host.spawner import SessionSpawner
from models import Reply, calls, completion, talks

SECRET = "sk-hush-hush"
WELL = talks("Very well.")
MALFORMED_CALL = "invalid_input: send a tool's name and its arguments as a JSON object."


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    """Reach the test's server without a proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def config(url, **more):
    return RuntimeConfig(type="openai", base_url=f"{url}/v1", model="stand-in", **more)


def runtime(model, **more):
    return OpenAiRuntime(config(model.url, **more), retry_delays=(0.01, 0.02, 0.03))


def session_task(prompt="How are you?", seconds=20.0, **more):
    return SessionTask(uuid4(), prompt, seconds, **more)


async def run_session(script, task=None, **more):
    """Run a session against a server with this script; return the result and the server."""
    async with models.chat(script) as model:
        return await runtime(model, **more).run(task or session_task()), model


async def run_failing_session(script, fault=SessionFailed, task=None, **more):
    """Run a session that fails; return its fault and the server."""
    async with models.chat(script) as model:
        with pytest.raises(fault) as raised:
            await runtime(model, **more).run(task or session_task())
    assert SECRET not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"
    return raised.value, model


# Requests and answers


async def test_what_the_model_says_is_the_answer():
    result, model = await run_session([talks("Very well.", taken=11, given=7)])
    assert result == RuntimeResult("Very well.", "chatcmpl-1", Usage(11, 7))
    (request,) = model.asked
    assert request.body == {"model": "stand-in", "messages": [{"role": "user", "content": "How are you?"}]}
    assert "authorization" not in request.headers


async def test_the_system_prompt_comes_first_as_a_message_of_its_own():
    task = session_task("Wie geht's? \N{SLICE OF PIZZA}", system_prompt="You are a butler.")
    _, model = await run_session([WELL], task)
    assert model.asked[0].messages == [
        {"role": "system", "content": "You are a butler."},
        {"role": "user", "content": "Wie geht's? \N{SLICE OF PIZZA}"},
    ]


async def test_an_address_may_end_with_a_slash():
    async with models.chat([WELL]) as model:
        made = runtimes.make_runtime(RuntimeConfig(type="openai", base_url=f"{model.url}/v1/", model="m"), None)
        assert made.name == "openai"
        assert (await made.run(session_task())).text == "Very well."


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "Very "}, {"type": "text", "text": "well."}], "Very well."),
        ([{"type": "image"}, "stray", {"type": "text", "text": "Well."}, {"text": None}], "Well."),
        ([], ""),
        (None, ""),
        (17, ""),
    ],
)
async def test_an_answer_may_come_in_parts(content, text):
    assert (await run_session([talks(content)]))[0].text == text


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, None),
        ("a lot", None),
        ({"prompt_tokens": "many", "completion_tokens": 2.5}, None),
        ({"prompt_tokens": 3, "completion_tokens": None}, Usage(3, 0)),
        ({"prompt_tokens": -5, "completion_tokens": 7}, Usage(0, 7)),
    ],
)
async def test_a_usage_that_makes_no_sense_counts_as_nothing(usage, counted):
    answer = {"id": 17, "choices": [{"message": {"content": "Well."}}], "usage": usage}
    assert (await run_session([models.as_json(answer)]))[0] == RuntimeResult("Well.", None, counted)


# The API key


async def test_the_key_is_sent_as_a_bearer_token(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    _, model = await run_session([WELL], api_key_env="A_KEY")
    assert model.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("value", [None, ""])
async def test_a_missing_key_is_told_by_its_variable(monkeypatch, value):
    monkeypatch.delenv("A_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("A_KEY", value)
    fault, model = await run_failing_session([WELL], Unavailable, api_key_env="A_KEY")
    assert str(fault) == (
        "unavailable: the environment variable A_KEY is not set. Export A_KEY with the server's API key."
    )
    with pytest.raises(Unavailable, match="A_KEY"):
        runtime(model, api_key_env="A_KEY").check()
    assert model.asked == []


async def test_a_key_read_from_a_file_may_end_with_its_line(monkeypatch):
    monkeypatch.setenv("A_KEY", f"{SECRET}\n")
    result, model = await run_session([WELL], api_key_env="A_KEY")
    assert result.text == "Very well."
    assert model.asked[0].headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize("key", [f"{SECRET} {SECRET}", f"{SECRET}-für-mich"])
async def test_a_key_that_no_header_can_carry_is_a_fault_that_does_not_show_it(monkeypatch, key):
    monkeypatch.setenv("A_KEY", key)
    await run_failing_session([WELL], Unavailable, api_key_env="A_KEY")


@pytest.mark.parametrize(
    "script",
    [
        [Reply(status=401, body=f"bad key {SECRET}".encode())],
        [Reply(status=400, body=f"bad key {SECRET}".encode())],
        [Reply(status=500, body=f"bad key {SECRET}".encode())],
        [Reply(body=f"bad key {SECRET}".encode())],
        [models.as_json({"error": f"bad key {SECRET}"})],
        [Reply(body=SECRET.encode(), cut_after=3)],
    ],
)
async def test_no_fault_shows_the_key(monkeypatch, script):
    monkeypatch.setenv("A_KEY", SECRET)
    await run_failing_session(script, Unavailable, api_key_env="A_KEY")


# Errors of the server


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_server_that_refuses_is_told_at_once(status):
    fault, model = await run_failing_session([Reply(status=status)], Unavailable)
    assert fault.message == f"the model server refused stand-in with status {status}"
    assert not isinstance(fault, SessionFailed)
    assert len(model.asked) == 1


async def test_a_server_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("A_KEY", SECRET)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
        absent = OpenAiRuntime(config(f"http://ada:{SECRET}@{place}", api_key_env="A_KEY"))
        with pytest.raises(Unavailable) as raised:
            await absent.run(session_task())
    assert raised.value.message == f"no model server answers at {place}"
    assert not isinstance(raised.value, SessionFailed)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://[::1", "http://a b"])
async def test_an_address_that_is_none_is_refused_where_it_is_written(url):
    with pytest.raises(ValidationError, match="is not a web address"):
        RuntimeConfig(type="openai", base_url=f"{url}/v1", model="m")


async def test_a_server_that_asks_for_patience_is_asked_again_when_it_says():
    began = time.monotonic()
    result, model = await run_session([Reply(status=429, headers={"Retry-After": "0.5"}), WELL])
    assert result.text == "Very well."
    assert len(model.asked) == 2
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("header", ["soon", "-5", "Wed, 21 Oct 2015 07:28:00 GMT", "nan", "1e-9", ""])
async def test_a_patience_nobody_understands_is_a_short_pause(header):
    result, model = await run_session(
        [Reply(status=503, headers={"Retry-After": header}), WELL], session_task(seconds=4)
    )
    assert (result.text, len(model.asked)) == ("Very well.", 2)


@pytest.mark.parametrize("header", ["inf", "1e300", "99999"])
async def test_a_patience_beyond_the_time_limit_ends_there(header):
    await run_failing_session(
        [Reply(status=429, headers={"Retry-After": header}), WELL], TimedOut, session_task(seconds=0.4)
    )


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
async def test_a_status_that_passes_is_asked_for_again(status):
    result, model = await run_session([Reply(status=status), WELL])
    assert (result.text, len(model.asked)) == ("Very well.", 2)


async def test_a_server_that_stumbles_three_times_is_asked_a_fourth_time():
    result, model = await run_session([Reply(status=500), Reply(status=502), Reply(status=529), WELL])
    assert (result.text, len(model.asked)) == ("Very well.", 4)


async def test_a_server_that_stumbles_for_ever_is_a_failure():
    fault, model = await run_failing_session([Reply(status=500)])
    assert fault.message == "the model server answered with status 500"
    assert len(model.asked) == 4


@pytest.mark.parametrize("status", [204, 301, 400, 418, 422])
async def test_any_other_status_is_a_failure_at_once(status):
    fault, model = await run_failing_session([Reply(status=status)])
    assert fault.message == f"the model server answered with status {status}"
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "did not answer with a JSON object"),
        (b"<html>It works!</html>", "did not answer with a JSON object"),
        (b"[]", "did not answer with a JSON object"),
        (b"\xff\xfe", "did not answer with a JSON object"),
        (b"[" * 200_000, "did not answer with a JSON object"),
        (b"{}", "without a message"),
        (b'{"choices": []}', "without a message"),
        (b'{"choices": null}', "without a message"),
        (b'{"choices": [null]}', "without a message"),
        (b'{"choices": {"0": {}}}', "without a message"),
        (b'{"choices": [{"message": "Well."}]}', "without a message"),
        (b'{"error": {"message": "no such model"}}', "without a message"),
    ],
)
async def test_an_answer_that_is_none_is_a_failure(body, expected):
    fault, _ = await run_failing_session([Reply(body)])
    assert expected in fault.message
    assert len(fault.message) < 200


async def test_an_answer_packed_in_garbage_is_a_failure():
    await run_failing_session([Reply(b"not packed at all", headers={"Content-Encoding": "gzip"})])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
async def test_an_answer_that_is_too_long_is_none(packed):
    body = b'{"filler": "' + b"x" * (10 << 20) + b'"}'
    reply = Reply(gzip.compress(body), headers={"Content-Encoding": "gzip"}) if packed else Reply(body)
    fault, _ = await run_failing_session([reply])
    assert fault.message == "the model answered more than 8 MiB"


async def test_an_answer_that_breaks_off_is_a_failure():
    fault, _ = await run_failing_session([Reply(WELL.body, cut_after=20)])
    assert fault.message.startswith("the connection to the model broke: ")


async def test_a_server_that_hangs_is_given_up_after_the_time_limit():
    began = time.monotonic()
    fault, _ = await run_failing_session([Reply(seconds=60)], TimedOut, session_task(seconds=0.4))
    assert fault.message == "the session took longer than 0.4 s"
    assert time.monotonic() - began < 5


async def test_a_session_that_is_cancelled_hangs_up():
    async with models.chat([Reply(seconds=60)]) as model:
        running = asyncio.ensure_future(runtime(model).run(session_task()))
        while not model.asked:  # noqa: ASYNC110 — the server has no event to wait for
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 5)


# Tools


@pytest.fixture
async def site(folder, listening):
    """A butler with the probe module on a real port."""
    async with listening(folder(memory=False)) as served:
        yield served


def with_tools(site, **more):
    return session_task(mcp=McpAccess(site.mcp), **more)


def answers(model):
    """Return the tools' answers in the last request."""
    return [(each["tool_call_id"], each["content"]) for each in model.asked[-1].messages if each["role"] == "tool"]


async def test_the_model_is_offered_the_butlers_tools_as_functions(site):
    _, model = await run_session([WELL], with_tools(site))
    async with Client(site.server.mcp) as client:
        listed = {tool.name: tool for tool in await client.list_tools()}
    assert set(model.asked[0].tools) == set(listed)
    assert "probe_write" in listed
    for each in model.asked[0].body["tools"]:
        tool = listed[each["function"]["name"]]
        assert each["type"] == "function"
        assert each["function"]["parameters"] == tool.input_schema
        assert each["function"]["description"] == tool.description


async def test_tool_calls_are_carried_out_and_their_answers_reach_the_model(site):
    first = calls(("probe_whoami", {}), ("probe_write", {"text": "a note"}), taken=10, given=1)
    second = calls(("probe_rows", '{"asked": 3, "returned": 2}'), taken=20, given=2)
    result, model = await run_session([first, second, talks("Done.", taken=30, given=3)], with_tools(site))
    assert result == RuntimeResult("Done.", "chatcmpl-1", Usage(60, 6))
    assert len(model.asked) == 3
    roles = [each["role"] for each in model.asked[-1].messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    (who_id, who), (write_id, written), (_, rows) = answers(model)
    assert (who_id, write_id) == ("call_0", "call_1")
    assert json.loads(who)["tenant"] == "default"
    assert json.loads(written)["rows"] >= 1
    assert json.loads(rows) == {"rows": 2}
    assert model.asked[1].messages[1]["tool_calls"][0]["id"] == "call_0"


async def test_an_error_of_a_tool_comes_back_to_the_model_as_text(site):
    wanted = calls(
        ("probe_fail", {"how": "fault"}), ("probe_fail", {"how": "otherwise"}), ("probe_write", {"text": ""})
    )
    result, model = await run_session([wanted, WELL], with_tools(site))
    (_, known), (_, unknown), (_, invalid) = answers(model)
    assert result.text == "Very well."
    assert known == "conflict: it is taken. Take another."
    assert "secret" not in unknown
    assert unknown
    assert "text" in invalid


async def test_arguments_that_are_no_object_are_answered(site):
    odd = ["{not json", "[1, 2]", '"text"', "null", "17", "[" * 200_000]
    result, model = await run_session([calls(*(("probe_whoami", given) for given in odd)), WELL], with_tools(site))
    assert result.text == "Very well."
    assert answers(model) == [(f"call_{number}", MALFORMED_CALL) for number in range(len(odd))]


@pytest.mark.parametrize("tools", [False, True], ids=["without tools", "with tools"])
async def test_a_tool_that_is_not_there_is_answered(site, tools):
    task = with_tools(site) if tools else session_task()
    result, model = await run_session([calls(("no_such_tool", {"a": 1})), WELL], task)
    assert result.text == "Very well."
    ((_, answer),) = answers(model)
    assert answer.startswith("not_found: there is no ")


async def test_a_call_that_makes_no_sense_is_answered(site):
    odd: list[Any] = [
        None,
        17,
        "probe_whoami",
        [],
        {},
        {"id": "a"},
        {"id": "a", "function": None},
        {"function": {"name": 17}},
    ]
    result, model = await run_session([completion({"tool_calls": odd}), WELL], with_tools(site))
    assert result.text == "Very well."
    assert [text for _, text in answers(model)] == [MALFORMED_CALL] * len(odd)


async def test_arguments_may_be_missing_or_an_object_already(site):
    given: list[Any] = ["", "  ", None, {}]
    wanted = [{"id": "a", "function": {"name": "probe_whoami", "arguments": each}} for each in given]
    wanted.append({"id": "b", "function": {"name": "probe_write", "arguments": {"text": "a note"}}})
    _, model = await run_session([completion({"tool_calls": wanted}), WELL], with_tools(site))
    assert [text for _, text in answers(model) if not text.startswith("{")] == []


@pytest.mark.parametrize("calls_", [None, [], {}, "probe_whoami"])
async def test_a_message_without_calls_is_the_answer(calls_):
    result, model = await run_session([completion({"content": "Well.", "tool_calls": calls_})])
    assert (result.text, len(model.asked)) == ("Well.", 1)


@pytest.mark.parametrize(
    "odd", [r'"half a pair: \ud83d"', '"a NUL: \\u0000"', "NaN", "-Infinity", "1" * 400], ids=lambda odd: odd[:16]
)
async def test_whatever_stands_in_a_message_is_sent_back_or_told_as_a_failure(odd):
    """Text beside tool calls is sent back with their answers."""
    call = '{"id": "a", "type": "function", "function": {"name": "nothing", "arguments": "{}"}}'
    body = f'{{"choices": [{{"message": {{"role": "assistant", "odd": {odd}, "tool_calls": [{call}]}}}}]}}'
    async with models.chat([Reply(body.encode()), WELL]) as model:
        try:
            assert (await runtime(model).run(session_task())).text == "Very well."
        except Fault as fault:
            assert isinstance(fault, SessionFailed)  # noqa: PT017 — either is right, anything else is not


async def test_endless_tool_calls_come_to_an_end(site):
    fault, model = await run_failing_session([calls(("probe_whoami", {}))], task=with_tools(site))
    assert fault.message == f"the model called tools {MAX_TURNS} times in a row without an answer"
    assert len(model.asked) == MAX_TURNS


async def test_a_tool_that_takes_too_long_ends_with_the_time_limit(site):
    began = time.monotonic()
    await run_failing_session([calls(("probe_sleep", {"seconds": 30})), WELL], TimedOut, with_tools(site, seconds=1))
    assert time.monotonic() - began < 10


async def test_a_butler_that_can_not_be_reached_is_a_fault():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        access = McpAccess(f"http://127.0.0.1:{free.getsockname()[1]}/mcp", {"Authorization": f"Bearer {SECRET}"})
        await run_failing_session([WELL], Unavailable, session_task(mcp=access))


async def test_a_butler_that_refuses_the_session_is_a_fault(folder, listening):
    async with listening(folder('[butler.auth]\nmode = "keys"\n', memory=False)) as site:
        access = McpAccess(site.mcp, {"Authorization": f"Bearer {SECRET}"})
        await run_failing_session([WELL], Unavailable, session_task(mcp=access))


# End to end


async def test_a_session_of_a_model_that_can_not_be_read_is_recorded_as_failed(site):
    caller, database = Caller(tenant=f"t-{uuid4().hex}", butler="general", actor="ada"), site.server.database
    async with models.chat([Reply(b"garbage")]) as model:
        with pytest.raises(SessionFailed):
            await SessionSpawner(runtime(model), database, 20).spawn(caller, "How?", trigger_source="person")
    async with database.transaction(caller) as tx:
        (session,) = await tx.fetch("select status, runtime, error from sessions")
    assert (session["status"], session["runtime"]) == ("failed", "openai")
    assert session["error"] == "the model server did not answer with a JSON object"


async def test_episodes_become_facts_through_a_chat_completions_server(folder, listening):
    tenant = f"t-{uuid4().hex}"
    async with models.chat(lambda request: talks(models.lessons(request.prompt), taken=1234, given=56)) as model:
        lines = f'[butler.runtime]\ntype = "openai"\nbase_url = "{model.url}/v1"\nmodel = "stand-in"\n'
        async with listening(folder(f'{lines}[butler.auth]\ntenant = "{tenant}"\n')) as site:
            await models.assert_consolidates(site, tenant, runtime="openai", taken=1234, given=56)
    assert len(model.asked) == 1
    assert "She asked for green tea." in model.asked[0].prompt
    assert model.asked[0].tools == []
