"""Merging of two entities: every fact is kept, each key has one live fact, and the source is hidden."""

import itertools
import json
import uuid

import pytest

from butlers.modules.memory.store import entities as store


async def test_facts_without_a_rival_become_the_targets(tools, archive):
    """Scenario: Fact re-pointing without conflict"""
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    tea = await tools.fact("tea", predicate="drink", entity_id=source)
    elsewhere = await tools.fact("tea", predicate="drink", entity_id=target, scope="health")
    nobodys = await tools.fact("tea", subject="Chloe", predicate="drink")
    done = await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert done == {
        "id": target,
        "source_entity_id": source,
        "target_entity_id": target,
        "facts_repointed": 1,
        "facts_superseded": 0,
        "aliases_added": 1,
    }
    for fact, about in ((tea, target), (elsewhere, target), (nobodys, None)):
        row = await archive.row("fact", fact)
        assert (row["validity"], row["entity_id"] and str(row["entity_id"])) == ("active", about)
    assert (await tools("entity_get", entity_id=target))["live_facts"] == 2


async def test_every_fact_moves_whatever_its_validity(tools, archive):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    facts = [await tools.fact(content, entity_id=source) for content in ("green", "blue", "red")]
    gone = await tools.fact("tea", predicate="drink", entity_id=source)
    await tools("memory_forget", type="fact", id=gone)
    expired = await tools.fact("x", predicate="mood", entity_id=source)
    await archive.change("fact", expired, validity="'expired'")
    done = await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert (done["facts_repointed"], done["facts_superseded"]) == (5, 0)
    rows = [await archive.row("fact", fact) for fact in (*facts, gone, expired)]
    assert {str(row["entity_id"]) for row in rows} == {target}
    assert [row["validity"] for row in rows] == ["superseded", "superseded", "active", "retracted", "expired"]
    assert await tools("memory_restore", type="fact", id=gone), "and can be brought back there"


@pytest.mark.parametrize(("ours", "theirs", "stays"), [(0.5, 0.9, "theirs"), (0.9, 0.5, "ours"), (0.7, 0.7, "ours")])
async def test_a_conflict_is_settled_for_the_higher_confidence_else_for_the_target(
    tools, archive, ours, theirs, stays
):
    """Scenario: Fact conflict resolution by confidence"""
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    facts = {
        "theirs": await tools.fact("green", entity_id=source),
        "ours": await tools.fact("blue", entity_id=target),
    }
    for name, confidence in (("ours", ours), ("theirs", theirs)):
        await archive.change("fact", facts[name], confidence=str(confidence))
    done = await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert (done["facts_repointed"], done["facts_superseded"]) == (1, 1)
    kept, lost = facts.pop(stays), facts.popitem()[1]
    winner, loser = await archive.row("fact", kept), await archive.row("fact", lost)
    assert (winner["validity"], loser["validity"]) == ("active", "superseded")
    assert str(winner["entity_id"]) == str(loser["entity_id"]) == target
    assert str(winner["supersedes_id"]) == lost
    (link,) = await tools("memory_links", type="fact", id=kept, direction="outgoing")
    assert (link["target_id"], link["relation"]) == (lost, "supersedes")
    found = await tools.ids("memory_search", query="green blue", types=["fact"])
    assert found == [kept], "what was superseded is out of every search"


async def test_the_histories_of_both_sides_of_a_conflict_stay_readable(tools):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    theirs = [await tools.fact(content, entity_id=source) for content in ("green", "red")]
    ours = [await tools.fact(content, entity_id=target) for content in ("blue", "white")]
    await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    history = await tools("memory_history", type="fact", id=ours[1])
    assert {each["id"] for each in history["superseded"]} == {theirs[0], theirs[1], ours[0]}
    for before in (*theirs, ours[0]):
        after = (await tools("memory_history", type="fact", id=before))["superseded_by"]
        assert after[-1]["id"] == ours[1]
    new = await tools.fact("black", entity_id=target)
    history = await tools("memory_history", type="fact", id=new)
    assert {each["id"] for each in history["superseded"]} == {*theirs, *ours}
    assert (await tools("memory_history", type="fact", id=theirs[1]))["superseded_by"][-1]["id"] == new


async def test_the_target_gets_the_names_and_the_metadata_of_the_source(tools, archive):
    """Scenario: Alias and metadata merging"""
    source = await tools.entity("Chloe M.", aliases=["coco", "CM", "chloe martin"], metadata={"a": 1, "b": {"x": 1}})
    target = await tools.entity("Chloe Martin", aliases=["Coco"], metadata={"b": {"y": 2}, "c": 3})
    done = await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert done["aliases_added"] == 2
    row = await archive.row("entity", target)
    assert row["canonical_name"] == "Chloe Martin"
    assert row["aliases"] == ["Coco", "Chloe M.", "CM"]
    assert json.loads(row["metadata"]) == {"a": 1, "b": {"y": 2}, "c": 3}
    assert row["updated_at"] > row["created_at"]


async def test_the_source_gives_its_name_up_and_says_who_stands_for_it(tools, archive):
    """Scenario: Source entity tombstoning"""
    source = await tools.entity("Chloe", aliases=["Coco"], metadata={"a": 1})
    target = await tools.entity("Chloe Martin")
    before = await archive.row("entity", source)
    await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    row = await archive.row("entity", source)
    assert json.loads(row["metadata"]) == {"a": 1, "merged_into": target, "former_name": "Chloe"}
    assert (row["canonical_name"], row["aliases"]) == (source, ["Coco"])
    assert row["updated_at"] > before["updated_at"]
    assert (await tools("entity_get", entity_id=source))["merged_into"] == target
    again = await tools.entity("Chloe")
    assert again not in {source, target}


async def test_a_merge_leaves_its_event_with_its_counts_and_one_for_each_superseded_fact(tools, archive):
    """Scenario: Audit event for merge"""
    source, target = await tools.entity("Chloe", aliases=["Coco"]), await tools.entity("Chloe Martin")
    kept = await tools.fact("blue", entity_id=target)
    lost = await tools.fact("green", entity_id=source)
    await tools.fact("tea", predicate="drink", entity_id=source)
    before = await archive.events(tools.tenant)
    await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    new = [event for event in await archive.events(tools.tenant) if event not in before]
    events = {event["event_type"]: event for event in new}
    assert sorted(event["event_type"] for event in new) == ["entity_merge", "fact_superseded"]
    merge = json.loads(events["entity_merge"]["payload"])
    merge.pop("butler")
    assert merge == {
        "source_entity_id": source,
        "target_entity_id": target,
        "facts_repointed": 2,
        "facts_superseded": 1,
        "aliases_added": 2,
    }
    assert (events["entity_merge"]["entity_type"], events["entity_merge"]["entity_id"]) == ("entity", target)
    assert events["fact_superseded"]["entity_id"] == lost
    assert json.loads(events["fact_superseded"]["payload"])["superseded_by"] == kept


async def test_what_can_not_be_merged_is_refused_and_changes_nothing(tools, archive):
    """Scenario: Merge validation"""
    source, target, third = [await tools.entity(name) for name in ("Chloe", "Chloe Martin", "Ada")]
    nobody = str(uuid.uuid4())
    await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    before = await archive.everything(tools.tenant)
    for pair, refusal in (
        ((third, third), "invalid_input: an entity can't be merged into itself."),
        ((source, third), f"conflict: the entity {source} was merged away. Use entity_id {target}."),
        ((third, source), f"conflict: the entity {source} was merged away. Use entity_id {target}."),
        ((source, target), f"conflict: the entity {source} was merged away."),
        ((target, source), f"conflict: the entity {source} was merged away."),
        ((nobody, third), f"not_found: the entity {nobody} does not exist."),
        ((third, nobody), f"not_found: the entity {nobody} does not exist."),
    ):
        message = await tools.refusal("entity_merge", source_entity_id=pair[0], target_entity_id=pair[1])
        assert message.startswith(refusal)
    assert await archive.everything(tools.tenant) == before


async def test_whatever_is_merged_on_and_on_names_the_one_that_lives(tools):
    chain = [await tools.entity(f"Chloe {number}") for number in range(4)]
    fact = await tools.fact("tea", entity_id=chain[0])
    for source, target in itertools.pairwise(chain):
        await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    assert (await tools("entity_get", entity_id=chain[0]))["merged_into"] == chain[3]
    assert (await tools("memory_get", type="fact", id=fact))["entity_id"] == chain[3]
    fact = {"subject": "s", "predicate": "p", "content": "c"}
    message = await tools.refusal("memory_store_fact", **fact, entity_id=chain[1])
    assert message == f"conflict: the entity {chain[1]} was merged away. Use entity_id {chain[3]}."
    message = await tools.refusal("entity_update", entity_id=chain[0], aliases=[])
    assert message == f"conflict: the entity {chain[0]} was merged away. Use entity_id {chain[3]}."
    assert (await tools("entity_get", entity_id=chain[3]))["aliases"] == ["Chloe 2", "Chloe 1", "Chloe 0"]


async def test_a_merge_sent_again_with_its_key_answers_what_it_answered(tools, archive):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    asked = {"source_entity_id": source, "target_entity_id": target, "idempotency_key": "k"}
    first = await tools("entity_merge", **asked)
    before = await archive.everything(tools.tenant)
    assert await tools("entity_merge", **asked) == first
    assert await archive.everything(tools.tenant) == before


async def test_a_fact_of_an_entity_supersedes_by_entity_scope_and_predicate(tools, archive):
    """Scenario: New fact supersedes existing fact with same subject and predicate"""
    chloe, other = await tools.entity("Chloe"), await tools.entity("Other Chloe")
    first = await tools.fact("green", subject="Chloe", entity_id=chloe)
    apart = [
        await tools.fact("green", subject="Chloe", entity_id=other),
        await tools.fact("green", subject="Chloe", entity_id=chloe, scope="health"),
        await tools.fact("green", subject="Chloe"),
    ]
    stored = await tools("memory_store_fact", subject="she", predicate="color", content="blue", entity_id=chloe)
    assert stored["superseded_id"] == first, "whatever the subject is called"
    again = await tools("memory_store_fact", subject="her", predicate="color", content="blue", entity_id=chloe)
    assert again == {"id": stored["id"], "confirmed_existing": True}
    for fact in apart:
        assert (await archive.row("fact", fact))["validity"] == "active"


async def test_every_reference_to_an_entity_is_in_the_list_of_what_a_merge_moves(archive):
    rows = await archive.rows(
        """
        select c.conrelid::regclass::text as "table", a.attname as "column"
          from pg_constraint c
          join pg_attribute a on a.attrelid = c.conrelid and a.attnum = any (c.conkey) and a.attname <> 'tenant_id'
         where c.contype = 'f' and c.confrelid = 'public.entities'::regclass
        """
    )
    assert {(row["table"], row["column"]) for row in rows} == set(store.ENTITY_REFERENCES)
    assert rows


async def test_a_table_that_refers_to_entities_and_is_not_in_the_list_is_seen(archive):
    async with archive.connection.transaction():
        await archive.connection.execute(
            "create table notes (tenant_id text, about uuid,"
            " foreign key (tenant_id, about) references entities (tenant_id, id))"
        )
        with pytest.raises(AssertionError):
            await test_every_reference_to_an_entity_is_in_the_list_of_what_a_merge_moves(archive)
        await archive.connection.execute("drop table notes")
