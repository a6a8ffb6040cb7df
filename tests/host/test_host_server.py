"""A butler's server in this process, through a real client of both protocol eras."""

import pytest
from fastmcp import Client

ERAS = ("auto", "legacy")


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_knows_its_caller(folder, running, era):
    async with running(folder()) as server, Client(server.mcp, mode=era) as client:
        who = (await client.call_tool("probe_whoami", {})).structured_content
    assert (who["tenant"], who["actor"], who["roles"], who["elevated"]) == ("default", "local", [], False)
    assert who["butler"] == server.config.name
    assert who["request_id"]
