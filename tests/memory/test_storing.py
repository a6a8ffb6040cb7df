"""Storing of episodes, facts, rules and links."""

import asyncio
import json
import uuid
from collections import Counter
from datetime import timedelta

import asyncpg
import pytest

from butlers.modules.memory.domain.model import MemoryType, NewFact, Relation
from butlers.modules.memory.operations import writing
from butlers.modules.memory.store import facts, links
from butlers.modules.memory.store.links import Link
from memory.memory_fixtures import REQUEST


async def test_an_episode_has_its_defaults(tools, archive, memory):
    """Scenario: Store episode with defaults
    Scenario: Episode schema and defaults
    Scenario: Episode created with defaults
    """
    answer = await tools("memory_store_episode", content="User asked about recipes", butler=memory.butler)
    row = await archive.row("episode", answer["id"])
    assert (row["content"], row["butler"], row["importance"]) == ("User asked about recipes", memory.butler, 5.0)
    assert (row["consolidation_status"], row["consolidated"], row["consolidation_attempts"]) == ("pending", False, 0)
    assert (row["retry_count"], row["last_error"], row["reference_count"]) == (0, None, 0)
    assert row["expires_at"] - row["created_at"] == timedelta(days=7)
    assert answer["expires_at"] == row["expires_at"].isoformat()
    assert (row["session_id"], row["last_referenced_at"], json.loads(row["metadata"])) == (None, None, {})


async def test_an_episode_takes_importance_and_session(tools, archive, memory):
    """Scenario: Store episode with custom importance"""
    session = str(uuid.uuid4())
    answer = await tools(
        "memory_store_episode", content="Severe allergy", butler=memory.butler, importance=9.0, session_id=session
    )
    row = await archive.row("episode", answer["id"])
    assert (row["importance"], str(row["session_id"])) == (9.0, session)


async def test_an_episode_has_its_vector_its_words_and_its_time(tools, archive, memory, engine):
    """Scenario: Store episode with embedding and search vector
    Scenario: Episode embedding generated at write time
    """
    answer = await tools("memory_store_episode", content="Talked about olives", butler=memory.butler)
    (row,) = await archive.rows(
        "select embedding::text as vector, search_vector::text as words from episodes where id = $1", answer["id"]
    )
    assert json.loads(row["vector"]) == pytest.approx(await engine.embed("Talked about olives"), abs=1e-6)
    assert "'oliv':3" in row["words"]


async def test_a_fact_has_its_defaults(tools, archive, memory):
    """Scenario: Fact schema and defaults
    Scenario: Fact starts as active
    Scenario: Fact created with default permanence
    """
    answer = await tools("memory_store_fact", subject="user", predicate="color", content="blue")
    assert set(answer) == {"id"}
    row = await archive.row("fact", answer["id"])
    expected = {
        "subject": "user",
        "predicate": "color",
        "content": "blue",
        "importance": 5.0,
        "confidence": 1.0,
        "decay_rate": 0.008,
        "permanence": "standard",
        "source_butler": memory.butler,
        "source_episode_id": None,
        "supersedes_id": None,
        "entity_id": None,
        "validity": "active",
        "scope": "global",
        "reference_count": 0,
        "tags": "[]",
        "metadata": "{}",
        "tenant_id": tools.tenant,
    }
    assert {name: row[name] for name in expected} == expected
    assert row["last_confirmed_at"] == row["last_referenced_at"] == row["created_at"]


async def test_a_fact_is_embedded_and_indexed_with_subject_and_predicate(tools, archive, engine):
    fact = await tools.fact("olives", subject="Ada", predicate="dislikes")
    (row,) = await archive.rows(
        "select embedding::text as vector, search_vector::text as words from facts where id = $1", fact
    )
    assert json.loads(row["vector"]) == pytest.approx(await engine.embed("Ada dislikes olives"), abs=1e-6)
    assert row["words"] == "'ada':1 'dislik':2 'oliv':3"


async def test_a_new_fact_supersedes_the_old_one_under_its_key(tools, archive):
    """Scenario: Store fact with supersession
    Scenario: Fact transitions to superseded
    Scenario: Store fact with supersession check
    Scenario: New fact supersedes existing fact with same subject and predicate
    """
    old = await tools.fact("green")
    answer = await tools("memory_store_fact", subject="user", predicate="color", content="blue")
    assert answer == {"id": answer["id"], "superseded_id": old}
    before, after = await archive.row("fact", old), await archive.row("fact", answer["id"])
    assert (before["validity"], after["validity"]) == ("superseded", "active")
    assert str(after["supersedes_id"]) == old
    (link,) = await archive.rows("select * from memory_links where tenant_id = $1", tools.tenant)
    assert (str(link["source_id"]), str(link["target_id"]), link["relation"]) == (answer["id"], old, "supersedes")
    assert (link["source_type"], link["target_type"]) == ("fact", "fact")


@pytest.mark.parametrize(
    "other", [{"subject": "Ada"}, {"predicate": "number"}, {"scope": "health"}], ids=["subject", "predicate", "scope"]
)
async def test_a_fact_under_another_key_leaves_the_first_alone(tools, archive, other):
    """Scenario: No supersession when subject-predicate pair is unique"""
    first = await tools.fact("blue")
    before = await archive.row("fact", first)
    await tools.fact("blue", **other)
    assert await archive.row("fact", first) == before
    assert await archive.count("memory_links", tools.tenant) == 0


@pytest.mark.parametrize(
    ("permanence", "rate"),
    [("permanent", 0.0), ("stable", 0.002), ("standard", 0.008), ("volatile", 0.03), ("ephemeral", 0.1)],
)
async def test_a_permanence_sets_the_rate_of_decay(tools, archive, permanence, rate):
    """Scenario: Store fact with permanence mapping
    Scenario: Fact created with permanence category
    Scenario: Permanence-to-decay-rate mapping
    """
    fact = await archive.row("fact", await tools.fact(permanence=permanence))
    rule = await archive.row("rule", await tools.rule(permanence=permanence))
    assert (fact["permanence"], fact["decay_rate"]) == (permanence, rate)
    assert (rule["permanence"], rule["decay_rate"]) == (permanence, rate)


async def test_a_permanence_that_is_none_is_refused_by_the_tool(tools, archive):
    """Scenario: Invalid permanence rejected"""
    message = await tools.refusal(
        "memory_store_fact", subject="user", predicate="color", content="blue", permanence="forever"
    )
    assert message.startswith("invalid_input: permanence: input should be 'permanent', 'stable', 'standard'")
    assert await archive.count("facts", tools.tenant) == 0


async def test_a_rule_begins_as_a_candidate(tools, archive, memory):
    """Scenario: Store new rule
    Scenario: Rule schema and defaults
    Scenario: Store rule as candidate
    Scenario: New rule starts as candidate
    """
    row = await archive.row("rule", await tools.rule("Always confirm before sending", scope="global"))
    expected = {
        "content": "Always confirm before sending",
        "scope": "global",
        "maturity": "candidate",
        "confidence": 0.5,
        "decay_rate": 0.01,
        "permanence": "standard",
        "effectiveness_score": 0.0,
        "applied_count": 0,
        "success_count": 0,
        "harmful_count": 0,
        "source_episode_id": None,
        "source_butler": memory.butler,
        "last_applied_at": None,
        "last_evaluated_at": None,
        "reference_count": 0,
        "tags": "[]",
        "metadata": "{}",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["last_confirmed_at"] == row["created_at"]
    assert row["embedding"] is not None
    assert row["search_vector"] is not None


async def test_the_column_default_of_a_rule_decays_like_a_standard_one(archive, tools):
    (row,) = await archive.rows(
        "insert into rules (tenant_id, content) values ($1, 'x') returning decay_rate", tools.tenant
    )
    assert row["decay_rate"] == 0.008


async def test_storing_what_is_believed_already_confirms_it(tools, archive):
    fact = await tools.fact(tags=["a", "b"])
    await archive.age("fact", fact, 50)
    await archive.change("fact", fact, metadata="""metadata || '{"status": "fading"}'""")
    answer = await tools("memory_store_fact", subject=" user ", predicate="color", content="blue", tags=["a", "b"])
    assert answer == {"id": fact, "confirmed_existing": True}
    row = await archive.row("fact", fact)
    assert row["last_confirmed_at"] - row["created_at"] > timedelta(days=49)
    assert json.loads(row["metadata"]) == {}
    assert await archive.count("facts", tools.tenant) == 1


@pytest.mark.parametrize(
    "change", [{"content": "Blue"}, {"importance": 6.0}, {"permanence": "stable"}, {"tags": ["x"]}]
)
async def test_anything_that_differs_supersedes(tools, change):
    first = await tools.fact()
    answer = await tools("memory_store_fact", **{"subject": "user", "predicate": "color", "content": "blue"} | change)
    assert answer["superseded_id"] == first


async def test_a_poller_that_stores_one_fact_five_hundred_times_makes_one_row(memory, caller, archive):
    fact = NewFact(subject="sensor", predicate="state", content="on")
    answers = [await writing.store_fact(memory, caller, fact, REQUEST) for _ in range(500)]
    assert len({answer["id"] for answer in answers}) == 1
    assert await archive.count("facts", caller.tenant) == 1


async def test_a_store_waits_for_another_change_of_its_key(memory, caller, archive):
    fact = NewFact(subject="user", predicate="color", content="blue")
    async with memory.transaction(caller) as tx:
        await facts.lock_key(tx, caller, fact.key)
        storing = asyncio.create_task(writing.store_fact(memory, caller, fact, REQUEST))
        await asyncio.sleep(0.3)
        assert not storing.done()
        assert await archive.rows("select from facts where tenant_id = $1", caller.tenant) == []
    assert set(await storing) == {"id"}


async def test_stores_of_one_key_at_once_leave_one_live_fact(memory, caller, archive):
    contents = [f"color {number}" for number in range(20)] * 2
    await asyncio.gather(
        *(
            writing.store_fact(memory, caller, NewFact(subject="user", predicate="color", content=content), REQUEST)
            for content in contents
        )
    )
    rows = await archive.rows("select id, validity, supersedes_id from facts where tenant_id = $1", caller.tenant)
    assert [row["validity"] for row in rows].count("active") == 1
    superseded = [row["supersedes_id"] for row in rows if row["supersedes_id"]]
    assert len(superseded) == len(set(superseded)) == len(rows) - 1, "each supersedes another one"
    events = await archive.rows("select event_type from memory_events where tenant_id = $1", caller.tenant)
    counts = Counter(row["event_type"] for row in events)
    assert counts["fact_created"] == len(rows)
    assert counts["fact_superseded"] == len(rows) - 1
    assert counts["fact_created"] + counts["fact_confirmed"] == len(contents)


async def test_a_fact_about_an_entity_is_keyed_by_it(tools, archive):
    """Scenario: Entity-keyed fact uniqueness (partial unique indexes)"""
    entity = await _entity(archive, tools.tenant, "Ada")
    named = await tools.fact("London", subject="Ada", predicate="lives_in")
    first = await tools.fact("Paris", subject="Ada", predicate="lives_in", entity_id=entity)
    answer = await tools(
        "memory_store_fact", subject="Ada L.", predicate="lives_in", content="Rome", entity_id=entity
    )
    assert answer["superseded_id"] == first
    assert (await archive.row("fact", named))["validity"] == "active"


async def test_a_fact_about_an_entity_that_is_not_there_is_refused(tools, stranger, archive):
    """Scenario: Store fact with entity_id validation"""
    foreign = await _entity(archive, stranger.tenant, "Ada")
    for entity in (str(uuid.uuid4()), foreign):
        message = await tools.refusal(
            "memory_store_fact", subject="Ada", predicate="lives_in", content="Rome", entity_id=entity
        )
        assert message.startswith(f"not_found: the entity {entity} does not exist.")
    message = await tools.refusal(
        "memory_store_fact", subject="Ada", predicate="lives_in", content="Rome", entity_id="telegram:5"
    )
    assert message.startswith("invalid_input: entity_id is not an id.")
    assert await archive.count("facts", tools.tenant) == 0


async def test_a_fact_about_a_merged_entity_is_sent_to_the_one_that_took_it_over(tools, archive):
    target = await _entity(archive, tools.tenant, "Ada Lovelace")
    gone = await _entity(archive, tools.tenant, "Ada", metadata=json.dumps({"merged_into": target}))
    message = await tools.refusal(
        "memory_store_fact", subject="Ada", predicate="lives_in", content="Rome", entity_id=gone
    )
    assert message.startswith("conflict: ")
    assert target in message


async def _entity(archive, tenant, name, metadata="{}") -> str:
    (row,) = await archive.rows(
        "insert into entities (tenant_id, canonical_name, entity_type, metadata)"
        " values ($1, $2, 'person', $3) returning id::text",
        tenant,
        name,
        metadata,
    )
    return row["id"]


async def test_links_are_made_once_and_checked(memory, caller, archive, tools):
    """Scenario: Memory link creation with validation
    Scenario: Idempotent link creation
    Scenario: Link created between episode and derived fact
    """
    fact, episode = uuid.UUID(await tools.fact()), uuid.uuid4()
    link = Link(MemoryType.FACT, fact, MemoryType.EPISODE, episode, Relation.DERIVED_FROM)
    async with memory.transaction(caller) as tx:
        await links.create_link(tx, caller, link)
        await links.create_link(tx, caller, link)
    (row,) = await archive.rows("select * from memory_links where tenant_id = $1", caller.tenant)
    assert (row["source_type"], row["target_type"], row["relation"]) == ("fact", "episode", "derived_from")
    assert {each.value for each in Relation} == {
        "derived_from",
        "supports",
        "contradicts",
        "supersedes",
        "related_to",
    }
    for column, value in (("relation", "knows"), ("source_type", "entity"), ("target_type", "person")):
        values = {"source_type": "fact", "target_type": "rule", "relation": "supports"} | {column: value}
        with pytest.raises(asyncpg.CheckViolationError, match=f"memory_links_{column}_known"):
            await _insert_link(archive, caller.tenant, uuid.uuid4(), uuid.uuid4(), **values)


async def test_the_table_refuses_a_second_link_between_the_same_two(archive, caller):
    """Scenario: Duplicate link rejected"""
    one, other = uuid.uuid4(), uuid.uuid4()
    await _insert_link(archive, caller.tenant, one, other)
    with pytest.raises(asyncpg.UniqueViolationError, match="memory_links_pkey"):
        await _insert_link(archive, caller.tenant, one, other, relation="contradicts")
    await _insert_link(archive, f"{caller.tenant}-other", one, other)


async def _insert_link(archive, tenant, source, target, source_type="fact", target_type="fact", relation="supports"):
    await archive.connection.execute(
        "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
        " values ($1, $2, $3, $4, $5, $6)",
        *(tenant, source_type, source, target_type, target, relation),
    )


async def test_links_are_shown_by_direction(tools):
    """Scenario: Link query by direction"""
    first = await tools.fact("red")
    second = await tools.fact("green")
    third = await tools.fact("blue")
    edge = lambda source, target: (source, target, "supersedes")  # noqa: E731

    async def shown(**direction):
        found = await tools("memory_links", memory_type="fact", memory_id=second, **direction)
        return sorted((each["source_id"], each["target_id"], each["relation"]) for each in found)

    assert await shown(direction="outgoing") == [edge(second, first)]
    assert await shown(direction="incoming") == [edge(third, second)]
    both = sorted([edge(second, first), edge(third, second)])
    assert await shown() == await shown(direction="") == await shown(direction="both") == both


async def test_a_legacy_forgotten_fact_is_kept_as_retracted_and_not_found(tools, archive):
    """Scenario: Legacy forgotten state accepted as compatibility alias"""
    fact = await tools.fact()
    await archive.change("fact", fact, validity="'forgotten'")
    assert (await archive.row("fact", fact))["validity"] == "retracted"
    assert await tools.ids("memory_search", query="blue") == []


async def test_each_row_names_the_version_that_made_its_vector(tools, archive, memory):
    """Scenario: Embedding model version recorded"""
    episode = await tools("memory_store_episode", content="x", butler=memory.butler)
    rows = [
        await archive.row("episode", episode["id"]),
        await archive.row("fact", await tools.fact()),
        await archive.row("rule", await tools.rule()),
    ]
    (version,) = await archive.rows("select * from embedding_versions where tenant_id = $1", tools.tenant)
    assert (version["model"], version["dimensions"]) == ("all-MiniLM-L6-v2", 384)
    assert {row["embedding_version_id"] for row in rows} == {version["id"]}


async def test_every_row_belongs_to_the_tenant_of_the_caller(tools, stranger, archive, memory):
    """Scenario: Tenant-scoped fact storage"""
    for each in (tools, stranger):
        await each.fact()
        await each.rule()
        await each("memory_store_episode", content="x", butler=memory.butler)
    for table in ("facts", "rules", "episodes"):
        assert await archive.count(table, tools.tenant) == await archive.count(table, stranger.tenant) == 1
