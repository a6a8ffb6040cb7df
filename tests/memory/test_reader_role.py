"""The role reader: a key that reads every memory of its tenant and changes nothing."""

from dataclasses import replace

import pytest

from butlers.caller import READER
from butlers.errors import InvalidInput
from butlers.host.api_keys import NewKey
from butlers.modules.memory.tools import TOOLS
from memory.memory_fixtures import valid_arguments

READING = {
    "memory_search",
    "memory_recall",
    "memory_get",
    "memory_context",
    "memory_stats",
    "memory_links",
    "memory_history",
    "memory_sessions",
    "memory_receipts",
    "memory_told",
    "entity_get",
    "entity_resolve",
}


async def test_a_reader_may_read_over_http_and_every_other_tool_is_forbidden(tools_with_key, tools, memory, archive):
    calls = await valid_arguments(tools, memory.butler)
    before = await archive.everything(tools.tenant)
    async with tools_with_key(tools.tenant, roles=("reader",)) as reader:
        for tool in TOOLS:
            if tool.name in READING:
                assert await reader(tool.name, **calls[tool.name]) is not None
            else:
                message = await reader.refusal(tool.name, **calls.get(tool.name, {}))
                assert message == (
                    f"forbidden: the role reader may not call {tool.name}."
                    " Use a key without the role reader to change memories."
                )
    assert await archive.everything(tools.tenant) == before, "reading counts no reference either"


async def test_a_reader_finds_what_anybody_finds(tools_with_key, tools):
    fact, rule = await tools.fact("likes green tea"), await tools.rule("Offer green tea")
    async with tools_with_key(tools.tenant, roles=("reader",)) as reader:
        assert set(await reader.ids("memory_recall", topic="green tea")) == {fact, rule}
        found = await reader("memory_get", memory_type="fact", memory_id=fact)
    same = await tools("memory_get", memory_type="fact", memory_id=fact)
    ignored = {"reference_count", "last_referenced_at", "confidence"}
    assert {n: v for n, v in found.items() if n not in ignored} == {n: v for n, v in same.items() if n not in ignored}
    assert found["reference_count"] == 0


async def test_of_two_roles_in_a_token_reader_wins(caller):
    both = replace(caller, roles=frozenset({READER, "admin"}))
    assert [tool.name for tool in TOOLS if tool.is_allowed(both)] == [
        tool.name for tool in TOOLS if tool.name in READING
    ]


def test_a_key_is_not_admin_and_reader():
    with pytest.raises(InvalidInput, match="both admin and reader"):
        NewKey(tenant="acme", actor="robot", roles=("admin", "reader"))
    with pytest.raises(InvalidInput, match="unknown role writer"):
        NewKey(tenant="acme", actor="robot", roles=("writer",))
