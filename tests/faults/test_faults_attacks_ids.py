"""Attacks with ids of another tenant, through every argument of every tool that takes an id."""

import json
import re
import uuid
from typing import Any

import pytest

from butlers.modules.memory.tools import TOOLS
from memory.memory_fixtures import Tools, valid_arguments

NAMES = [tool.name for tool in TOOLS]
NOT_IDS = {"tenant_id", "idempotency_key"}
SPECIAL = {"undo": "retraction", "session_id": "session"}
ANY = ("fact", "rule", "episode", "entity")
FOREIGN_CONTENT = re.compile("secret talk|secret drink of theirs|Keep the secret|Ada of their secret")


async def store_one_of_each(tools: Tools, butler: str) -> dict[str, str]:
    """Store one memory of each kind, with a word that only its tenant knows, and return the ids."""
    session = str(uuid.uuid4())
    episode = await tools("memory_store_episode", content="a secret talk", butler=butler, session_id=session)
    taken = await tools("memory_store_episode", content="a secret to be taken back", butler=butler)
    gone = await tools("memory_retract_from", episode_id=taken["id"], dry_run=False)
    return {
        "fact": await tools.fact("a secret drink of theirs"),
        "rule": await tools.rule("Keep the secret"),
        "episode": episode["id"],
        "entity": await tools.entity("Ada of their secret"),
        "retraction": gone["retraction_id"],
        "session": session,
    }


def id_arguments(schema: dict[str, Any]) -> list[str]:
    """Return the arguments of a tool that take an id, according to its schema."""
    found = []
    for name, about in schema["properties"].items():
        description = json.dumps(about.get("description", ""))
        if name not in NOT_IDS and (re.search(r"(^|_)ids?$", name) or re.search(r"\b(id|\w+_id)\b", description)):
            found.append(name)
    return found


async def test_row_29_another_tenants_ids_open_nothing_through_any_argument_of_any_tool(
    tools, stranger, memory, archive
):
    calls = await valid_arguments(tools, memory.butler)
    assert set(calls) == set(NAMES), "a new tool needs a valid call here"
    theirs = await store_one_of_each(stranger, memory.butler)
    before = await archive.everything(stranger.tenant)
    schemas = {tool.name: tool.input_schema for tool in await tools.client.list_tools()}
    tried = set()
    for name, arguments in calls.items():
        for argument in id_arguments(schemas[name]):
            tried.add(argument)
            for kind in (SPECIAL[argument],) if argument in SPECIAL else ANY:
                sent = arguments | {argument: [theirs[kind]] if argument.endswith("ids") else theirs[kind]}
                sent |= {"memory_type": kind} if "memory_type" in sent and kind != "entity" else {}
                answer = await tools.client.call_tool(name, sent, raise_on_error=False)
                text = f"{answer.content} {answer.structured_content}"
                assert not FOREIGN_CONTENT.search(text), (name, argument)
                assert "internal: " not in text, (name, argument)
    assert await archive.everything(stranger.tenant) == before
    assert tried >= {"memory_id", "rule_id", "entity_id", "source_entity_id", "episode_ids", "session_id", "undo"}


@pytest.mark.parametrize("kind", ["source_entity_id", "target_entity_id"])
async def test_row_29_nobody_merges_with_another_tenants_entity(tools, stranger, archive, kind):
    other = {"source_entity_id": "target_entity_id", "target_entity_id": "source_entity_id"}[kind]
    pair = {kind: await stranger.entity("Ada"), other: await tools.entity("Ada")}
    before = [await archive.everything(each.tenant) for each in (tools, stranger)]
    assert (await tools.refusal("entity_merge", **pair)).startswith("not_found: ")
    assert [await archive.everything(each.tenant) for each in (tools, stranger)] == before


async def test_row_29_another_tenants_idempotency_key_gets_an_answer_of_ones_own(tools, stranger):
    fact = {"subject": "user", "predicate": "drink", "content": "tea", "idempotency_key": "the same"}
    assert (await stranger("memory_store_fact", **fact))["id"] != (await tools("memory_store_fact", **fact))["id"]


async def test_row_29_hints_about_another_tenants_entity_bring_it_into_no_answer(tools, stranger):
    foreign = await stranger.entity("Ada of the secret")
    own = await tools.entity("Ada")
    found = await tools("entity_resolve", name="ada", context_hints={"domain_scores": {foreign: 50}})
    assert [each["entity_id"] for each in found] == [own]
