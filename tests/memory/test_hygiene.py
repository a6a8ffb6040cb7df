"""Hygiene of a memory: its findings, its score, its fix, and the same of an exported file."""

import io
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import MemoryType, NewEpisode, NewFact, NewRule
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource
from butlers.modules.memory.operations import consolidation, export_import, hygiene, receipts, undo, writing
from butlers.modules.memory.operations.hygiene_file import inspect_file
from memory.made_credentials import credentials
from memory.memory_fixtures import REQUEST
from memory.scripted_model import ScriptedModel, model_output, new_fact, with_model

EXPECTED = {
    "duplicates": 1,
    "twins": 2,
    "contradictions": 1,
    "echoes": 1,
    "secrets": 1,
    "unused_facts": 1,
    "unjudged_rules": 1,
    "entities_with_one_name": 1,
}


async def store(memory, caller, predicate, content, subject="user") -> str:
    fact = NewFact(subject=subject, predicate=predicate, content=content)
    return str((await writing.store_fact(memory, caller, fact, REQUEST))["id"])


@pytest.fixture
async def rotten(memory, caller, archive, tools):
    """A tenant with one of each finding, two pairs of twins, and a memory that is fine."""
    keeping = replace(memory, config=memory.config.model_copy(update={"secrets": "keep"}))
    ids = {
        "first": await store(memory, caller, "favourite_color", "purple"),
        "duplicate": await store(memory, caller, "color", "Purple"),
        "twin": await store(memory, caller, "likes_color", "likes purple best"),
        "city": await store(memory, caller, "lives_in", "Lisbon", "Ada"),
        "other city": await store(memory, caller, "lives_in_city", "Porto", "Ada"),
        "told": await store(memory, caller, "drinks", "green tea in the morning", "Tom"),
        "secret": await store(keeping, caller, "login", credentials()["github"][0], "router"),
        "unused": await store(memory, caller, "plays", "the cello", "Eve"),
    }
    for text in ("Run the tests before every commit", "Always run all tests before committing"):
        ids[text] = (await writing.store_rule(memory, caller, NewRule(content=text), REQUEST))["id"]
    ids["unjudged"] = (await writing.store_rule(memory, caller, NewRule(content="Use metric units"), REQUEST))["id"]
    await archive.age("fact", ids["unused"], 40)
    await archive.age("rule", ids["unjudged"], 40)
    await tools.entity("Ada Lovelace")
    await tools.entity("ada lovelace", entity_type="other")
    ids["echo"] = await _echo(memory, caller, archive, ids["told"])
    return ids


async def _echo(memory, caller, archive, told: str) -> str:
    """Learn again, without the guards, what a session was told."""
    session = replace(caller, session_id=str(uuid4()))
    line = ReceiptLine(MemoryType.FACT, UUID(told), 1)
    receipts.record(memory, session, Receipt(ReceiptSource.CONTEXT, [line]))
    await receipts.settle(memory)
    episode = NewEpisode(content="Asked: Hi", butler=memory.butler, session_id=UUID(session.session_id))
    await writing.store_episode(memory, session, episode, REQUEST)
    output = model_output(new_facts=[new_fact("green tea in the morning hours", "morning_drink", "Tom")])
    unguarded = with_model(memory, ScriptedModel(output), drop_echoes=False, confirm_twins=False)
    done = await consolidation.consolidate(unguarded, caller)
    return str(done["learned"][0]["id"])


def counts(answer) -> dict[str, int]:
    return {each["kind"]: each["count"] for each in answer["findings"]}


async def test_each_finding_has_its_count_examples_and_remedy(memory, caller, archive, rotten, tools):
    before = await archive.everything(caller.tenant)
    answer = await tools("memory_hygiene")
    assert counts(answer) == EXPECTED
    assert await archive.everything(caller.tenant) == before
    examples = {each["kind"]: each["examples"] for each in answer["findings"]}
    assert [each["id"] for each in examples["duplicates"]] == [rotten["duplicate"]]
    assert examples["duplicates"][0]["beside"]["id"] == rotten["first"]
    assert {each["id"] for each in examples["twins"]} == {
        rotten["twin"], rotten["Always run all tests before committing"],
    }  # fmt: skip
    assert [each["id"] for each in examples["echoes"]] == [rotten["echo"]]
    assert examples["secrets"][0]["kinds"] == {"GitHub Token": 1}
    assert credentials()["github"][1] not in str(answer)
    assert all(each["remedy"] for each in answer["findings"])
    # Nine facts, three rules, an episode and two entities; six are bad, two are neglected.
    assert answer["score"] == round(100 * (1 - (6 + 2 / 4) / sum(answer["live"].values())))


async def test_a_fix_forgets_in_one_batch_that_can_be_undone(memory, caller, archive, rotten):
    before = await archive.rows("select id, validity from facts where tenant_id = $1 order by id", caller.tenant)
    fixed = await hygiene.fix(memory, caller, ["duplicates", "twins", "echoes", "secrets", "unused_facts"])
    assert fixed["forgotten"] == {"facts": 5, "rules": 1}
    after = counts((await hygiene.inspect(memory, caller)).answer())
    assert {kind: after[kind] for kind in fixed["fixed"]} == dict.fromkeys(fixed["fixed"], 0)
    assert (await archive.row("fact", rotten["first"]))["validity"] == "active"
    await undo.undo(memory, replace(caller, request_id=str(uuid4())), fixed["request_id"], REQUEST)
    assert before == await archive.rows(
        "select id, validity from facts where tenant_id = $1 order by id", caller.tenant
    )


async def test_a_finding_that_needs_a_decision_has_no_fix(memory, caller):
    with pytest.raises(InvalidInput, match="contradictions"):
        await hygiene.fix(memory, caller, ["contradictions"])


async def test_an_exported_file_is_inspected_without_storing_anything(memory, caller, archive, rotten):
    out = io.StringIO()
    await export_import.export_tenant(memory, caller, out.write)
    before = await archive.everything(caller.tenant)
    answer = (await inspect_file(memory, io.BytesIO(out.getvalue().encode()))).answer()
    # A file does not tell what sessions were told: the echo is a twin. Only the database compares names.
    assert counts(answer) == {**EXPECTED, "twins": 3, "echoes": 0, "entities_with_one_name": 0}
    assert await archive.everything(caller.tenant) == before


async def test_a_clean_or_empty_memory_has_the_full_score(memory, caller):
    assert (await hygiene.inspect(memory, caller)).answer()["score"] == 100
    await store(memory, caller, "favourite_color", "purple")
    await store(memory, caller, "favourite_dish", "lentil soup")
    answer = (await hygiene.inspect(memory, caller)).answer()
    assert (answer["score"], set(counts(answer).values())) == (100, {0})


async def test_hygiene_sees_its_own_tenant_only(memory, caller, rotten, stranger):
    answer = await stranger("memory_hygiene")
    assert (answer["score"], sum(answer["live"].values())) == (100, 0)
