"""A butler's server in this process, with clients of both protocol versions."""

import math
import re

import pytest
from fastmcp import Client

from butlers.contract import tool
from butlers.errors import ConfigurationFault
from probe import MODULES, ProbeModule

ERAS = ("auto", "legacy")


async def error_text(client, name="probe_whoami", **arguments):
    """Return the error text of a failing call."""
    answer = await client.call_tool(name, arguments, raise_on_error=False)
    assert answer.is_error, answer
    return answer.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_knows_its_caller(folder, running, era):
    async with running(folder()) as server, Client(server.mcp, mode=era) as client:
        who = (await client.call_tool("probe_whoami", {})).structured_content
    assert (who["tenant"], who["actor"], who["roles"], who["elevated"]) == ("default", "local", [], False)
    assert who["butler"] == server.config.name
    assert who["request_id"]
    assert who["home_tenant"] is None


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_shows_its_own_arguments_and_nothing_of_the_house(folder, running, era):
    async with running(folder()) as server, Client(server.mcp, mode=era) as client:
        tools = {each.name: each for each in await client.list_tools()}
    write = tools["probe_write"]
    assert set(write.input_schema["properties"]) == {"text", "seconds"}
    assert write.input_schema["required"] == ["text"]
    # The specification has it on the entity tools only.
    others = [each.input_schema for name, each in tools.items() if not name.startswith("entity_")]
    assert "tenant_id" not in str(others)
    assert write.output_schema["properties"]["rows"]["type"] == "integer"
    assert (write.annotations.read_only_hint, write.annotations.open_world_hint) == (False, False)
    assert tools["probe_whoami"].annotations.read_only_hint is True


@pytest.mark.parametrize("named", ["default", "", None])
async def test_ones_own_tenant_or_none_is_harmless(folder, running, named):
    async with running(folder()) as server, Client(server.mcp) as client:
        who = (await client.call_tool("probe_whoami", {"tenant_id": named})).structured_content
    assert (who["tenant"], who["home_tenant"]) == ("default", None)


async def test_another_tenant_is_forbidden(folder, running):
    async with running(folder()) as server, Client(server.mcp) as client:
        assert (await error_text(client, tenant_id="globex")).startswith(
            "forbidden: your credentials are for another tenant"
        )


@pytest.mark.parametrize("named", [" ", "a b", "../x", "x" * 129, "-a", "ü", 7, True, ["default"], {"a": 1}, "a\n"])
async def test_what_can_not_name_a_tenant_is_invalid(folder, running, named):
    async with running(folder()) as server, Client(server.mcp) as client:
        assert (await error_text(client, tenant_id=named)).startswith("invalid_input: a tenant name is")


async def test_a_fault_is_code_message_and_hint(folder, running):
    async with running(folder()) as server, Client(server.mcp) as client:
        assert await error_text(client, "probe_fail", how="fault") == "conflict: it is taken. Take another."


async def test_an_unexpected_error_is_internal_and_its_reference_stands_in_the_log(folder, running, caplog):
    async with running(folder()) as server, Client(server.mcp) as client:
        answer = await error_text(client, "probe_fail", how="whisper")
    match = re.fullmatch(r"internal: an unexpected error occurred\. .* reference (\S+)\.", answer)
    assert match
    logged = next(record for record in caplog.records if record.getMessage() == "internal")
    assert logged.request_id == match[1]
    assert logged.exc_info[1] is not None


@pytest.mark.parametrize("how", ["whisper", "constraint"])
async def test_neither_answer_nor_log_repeats_an_errors_own_words(folder, running, how, logging_as, capfd):
    logging_as("debug", "json")
    async with running(folder()) as server, Client(server.mcp) as client:
        answer = await error_text(client, "probe_fail", how=how)
    log = capfd.readouterr().err
    assert "probe.py" in log
    for text in (answer, log):
        assert "secret" not in text
        assert "whisper" not in text
        assert "Failing row" not in text


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("probe_write", {}, "text: is required"),
        ("probe_write", {"text": "a", "colour": "red"}, "colour: there is no such argument"),
        ("probe_write", {"text": 5}, "text: "),
        ("probe_write", {"text": None}, "text: "),
        ("probe_write", {"text": ""}, "text: "),
        ("probe_write", {"text": "a", "seconds": "5"}, "seconds: "),
        ("probe_write", {"text": "a", "seconds": math.nan}, "seconds: "),
        ("probe_write", {"text": "a", "seconds": math.inf}, "seconds: "),
        ("probe_write", {"text": "a", "seconds": True}, "seconds: "),
        ("probe_rows", {"asked": 1.5, "returned": 1}, "asked: "),
        ("probe_rows", {"asked": "one", "returned": [1]}, "returned: "),
    ],
)
async def test_arguments_that_can_not_be_taken_are_named(folder, running, name, arguments, named):
    async with running(folder()) as server, Client(server.mcp) as client:
        answer = await error_text(client, name, **arguments)
    assert answer.startswith("invalid_input: ")
    assert named in answer
    assert answer.endswith("The tool's input schema says what each argument takes.")


async def test_an_unknown_tool_is_not_found_and_makes_no_label(folder, running):
    async with running(folder()) as server, Client(server.mcp) as client:
        assert (await error_text(client, "probe_nothing")).startswith("not_found: there is no such tool.")
        page = (await server.metrics.render(server.database, server.gauges)).decode()
    assert "probe_nothing" not in page
    assert 'butlers_tool_calls_total{outcome="not_found",tool="unknown"} 1.0' in page


async def test_a_call_over_its_time_limit_times_out(folder, running):
    place = folder("[butler.limits]\ncall_timeout_seconds = 0.2")
    async with running(place) as server, Client(server.mcp) as client:
        answer = await error_text(client, "probe_sleep", seconds=30)
        assert answer.startswith("timeout: the call took longer than 0.2 s.")
        assert not (await client.call_tool("probe_whoami", {})).is_error


async def test_a_query_over_its_time_limit_times_out_and_the_connection_stays_usable(folder, running):
    place = folder("[butler.database]\npool_size = 1")
    async with running(place) as server, Client(server.mcp) as client:
        assert (await error_text(client, "probe_fail", how="slow query")).startswith(
            "timeout: the database took too long"
        )
        assert (await client.call_tool("probe_write", {"text": "after"})).structured_content["rows"] >= 1


async def test_every_call_is_counted_by_tool_and_outcome(folder, running):
    async with running(folder()) as server, Client(server.mcp) as client:
        await client.call_tool("probe_whoami", {})
        await client.call_tool("probe_whoami", {})
        await client.call_tool("probe_rows", {"asked": 10, "returned": 7})
        await error_text(client, "probe_fail", how="fault")
        await error_text(client, "probe_fail", how="whisper")
        await error_text(client, "probe_write")
        await error_text(client, tenant_id="globex")
        page = (await server.metrics.render(server.database, server.gauges)).decode().splitlines()
    for line in (
        'butlers_tool_calls_total{outcome="ok",tool="probe_whoami"} 2.0',
        'butlers_tool_calls_total{outcome="forbidden",tool="probe_whoami"} 1.0',
        'butlers_tool_calls_total{outcome="conflict",tool="probe_fail"} 1.0',
        'butlers_tool_calls_total{outcome="internal",tool="probe_fail"} 1.0',
        'butlers_tool_calls_total{outcome="invalid_input",tool="probe_write"} 1.0',
        'butlers_tool_seconds_count{tool="probe_whoami"} 3.0',
        'butlers_rows_asked_total{tool="probe_rows"} 10.0',
        'butlers_rows_returned_total{tool="probe_rows"} 7.0',
        'butlers_pool_connections{state="limit"} 10.0',
        'butlers_module{module="probe",name="runs"} 0.0',
    ):
        assert line in page
    assert any(line.startswith('butlers_module{module="memory",name="episodes_pending"} ') for line in page)


async def test_a_butler_without_memory_runs_and_has_none_of_its_tools(folder, running):
    async with running(folder(memory=False)) as server, Client(server.mcp) as client:
        names = [each.name for each in await client.list_tools()]
        assert not (await client.call_tool("probe_whoami", {})).is_error
    assert "probe_whoami" in names
    assert not [name for name in names if name.startswith(("memory_", "entity_"))]


async def test_two_tools_of_one_name_stop_the_start(folder, running):
    @tool()
    async def probe_whoami(_, __) -> str:
        """Another."""
        return "me"

    class Twice(ProbeModule):
        def tools(self):
            return (*super().tools(), probe_whoami)

    with pytest.raises(ConfigurationFault, match="more than one module has a tool probe_whoami"):
        async with running(folder(), modules=(*MODULES[:-1], Twice)):
            pass
