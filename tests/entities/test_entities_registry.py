"""Creating, reading and updating entities: names in any script, their attributes and their tenants."""
# ruff: noqa: RUF001 — names of many scripts

import asyncio
import json
import uuid

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.caller import Caller
from butlers.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from butlers.modules.memory.domain.entities import EntityChange, EntityType, NewEntity
from butlers.modules.memory.domain.entity_resolution import ResolutionHints
from butlers.modules.memory.domain.errors import (
    EntityMergedAway,
    EntityMergedWithItself,
    EntityNameTaken,
    EntityNotFound,
    UnknownEntityType,
)
from butlers.modules.memory.operations import entities
from memory.memory_fixtures import REQUEST

CHLOE = NewEntity(canonical_name="Chloe", entity_type=EntityType.PERSON)


async def test_a_new_entity_has_what_was_said_and_the_defaults(tools, archive):
    """Scenario: Entity schema"""
    made = await tools(
        "entity_create",
        canonical_name=" Chloe\n Martin ",
        entity_type="person",
        aliases='["Coco", "coco", "CHLOE MARTIN"]',
        metadata={"born": 1990, "deep": [None, {"a": [1.5, True]}]},
    )
    assert made["id"] == made["entity_id"]
    row = await archive.row("entity", made["id"])
    assert (row["tenant_id"], row["canonical_name"], row["entity_type"]) == (tools.tenant, "Chloe Martin", "person")
    assert row["aliases"] == ["Coco"]
    assert json.loads(row["metadata"]) == {"born": 1990, "deep": [None, {"a": [1.5, True]}]}
    assert row["created_at"] == row["updated_at"]
    bare = await archive.row("entity", await tools.entity("Acme", "organization"))
    assert (bare["aliases"], bare["metadata"]) == ([], "{}")


async def test_an_entity_is_read_whole_with_the_number_of_its_live_facts(tools):
    chloe = await tools.entity("Chloe", aliases=["Coco"], metadata={"born": 1990})
    await tools.fact("green", entity_id=chloe)
    await tools.fact("blue", entity_id=chloe)
    await tools.fact("tea", predicate="drink", entity_id=chloe)
    for name in ("entity_id", "id"):
        found = await tools("entity_get", **{name: f" {chloe.upper()} "})
        assert (found["id"], found["entity_id"], found["tenant_id"]) == (chloe, chloe, tools.tenant)
        assert (found["canonical_name"], found["entity_type"], found["aliases"]) == ("Chloe", "person", ["Coco"])
        assert (found["metadata"], found["live_facts"]) == ({"born": 1990}, 2)
        assert found["created_at"] == found["updated_at"]
        assert found["merged_into"] is None


async def test_a_name_is_taken_whatever_its_case_and_the_refusal_says_by_whom(tools, archive):
    """Scenario: Uniqueness constraint on entities"""
    chloe = await tools.entity("Chloé Martin")
    for name in ("Chloé Martin", "CHLOÉ  MARTIN", "Chloe\u0301 Martin"):
        message = await tools.refusal("entity_create", canonical_name=name, entity_type="person")
        assert message.startswith("already_exists: the person '")
        assert f"exists: entity_id {chloe}. Use that one" in message
    assert await tools.entity("Chloe Martin"), "without the accent it is another name"
    assert await tools.entity("chloé martin", "organization"), "and of another kind it is another thing"
    assert await archive.count("entities", tools.tenant) == 3


async def test_two_who_share_a_first_name_stay_two(tools):
    martin = await tools.entity("Chloe Martin", aliases=["Chloe"])
    smith = await tools.entity("Chloe Smith", aliases=["Chloe"])
    await tools.fact("green", entity_id=martin)
    await tools.fact("blue", entity_id=smith)
    assert [each["entity_id"] for each in await tools("entity_resolve", name="chloe")] == [martin, smith]
    assert (await tools("entity_get", entity_id=martin))["live_facts"] == 1


async def test_the_specified_value_errors_are_faults_that_an_agent_can_read(memory, caller):
    """Scenario: Entity type validation
    Scenario: Uniqueness constraint on entities
    Scenario: Merge validation
    """
    with pytest.raises(ValueError, match="'ghost' is not an entity_type") as unknown:
        EntityType.named("ghost")
    assert "person, organization, place, other" in str(unknown.value)
    made = uuid.UUID((await entities.create(memory, caller, CHLOE, REQUEST))["id"])
    with pytest.raises(ValueError, match="exists") as taken:
        await entities.create(memory, caller, CHLOE, REQUEST)
    with pytest.raises(ValueError, match="does not exist") as missing:
        await entities.get(memory, caller, uuid.uuid4())
    with pytest.raises(ValueError, match="into itself") as same:
        await entities.merge(memory, caller, made, made, REQUEST)
    kinds = [type(each.value) for each in (unknown, taken, missing, same)]
    assert kinds == [UnknownEntityType, EntityNameTaken, EntityNotFound, EntityMergedWithItself]
    bases = [(UnknownEntityType, InvalidInput), (EntityNameTaken, AlreadyExists), (EntityNotFound, NotFound)]
    for kind, base in [*bases, (EntityMergedWithItself, InvalidInput), (EntityMergedAway, Conflict)]:
        assert issubclass(kind, base)
        assert issubclass(kind, ValueError)


async def test_a_kind_that_is_none_is_refused_with_those_there_are(tools, archive):
    """Scenario: Entity type validation"""
    message = await tools.refusal("entity_create", canonical_name="Chloe", entity_type="ghost")
    assert message.startswith("invalid_input: entity_type: ")
    for kind in ("person", "organization", "place", "other"):
        assert f"'{kind}'" in message
        assert await tools.entity("Chloe", f" {kind.title()} ")
    assert await archive.count("entities", tools.tenant) == 4


async def test_updating_replaces_the_name_and_the_aliases_and_adds_to_the_metadata(tools, archive):
    """Scenario: Entity update semantics"""
    chloe = await tools.entity("Chloe", aliases=["Coco", "C"], metadata={"a": 1, "b": {"c": 1}})
    before = await archive.row("entity", chloe)
    first = await tools("entity_update", entity_id=chloe, metadata={"b": {"d": 2}, "e": None})
    assert (first["changed"], first["aliases"]) == (["metadata"], ["Coco", "C"])
    assert first["metadata"] == {"a": 1, "b": {"d": 2}, "e": None}
    second = await tools("entity_update", id=chloe, canonical_name="Chloe Martin", aliases=["Chloe", "chloe"])
    assert (second["canonical_name"], second["aliases"], second["metadata"]) == (
        "Chloe Martin",
        ["Chloe"],
        first["metadata"],
    )
    assert (await tools("entity_update", entity_id=chloe, aliases=[]))["aliases"] == []
    row = await archive.row("entity", chloe)
    assert (row["canonical_name"], row["aliases"]) == ("Chloe Martin", [])
    assert row["updated_at"] > before["updated_at"]
    assert row["created_at"] == before["created_at"]
    assert await tools("entity_resolve", name="Coco") == []
    assert [each["name_match"] for each in await tools("entity_resolve", name="chloe martin")] == ["exact"]


async def test_an_update_that_asks_for_nothing_or_for_a_taken_name_changes_nothing(tools, archive):
    chloe, ada = await tools.entity("Chloe"), await tools.entity("Ada")
    before = await archive.everything(tools.tenant)
    blank = {"canonical_name": "", "aliases": "", "metadata": ""}
    message = await tools.refusal("entity_update", entity_id=chloe, **blank)
    assert message.startswith("invalid_input: the change is empty.")
    message = await tools.refusal("entity_update", entity_id=chloe, canonical_name="ADA")
    assert message.startswith(f"already_exists: the person 'ADA' exists: entity_id {ada}.")
    assert (await tools.refusal("entity_update", entity_id=str(uuid.uuid4()), aliases=[])).startswith("not_found: ")
    assert await archive.everything(tools.tenant) == before
    assert (await tools("entity_update", entity_id=chloe, canonical_name="CHLOE"))["canonical_name"] == "CHLOE"


async def test_nobody_can_bury_an_entity_by_hand(tools):
    chloe = await tools.entity("Chloe")
    for key in ("merged_into", "former_name"):
        for name, about in (
            ("entity_create", {"canonical_name": "x", "entity_type": "other"}),
            ("entity_update", {"entity_id": chloe}),
        ):
            message = await tools.refusal(name, **about, metadata={key: chloe})
            assert message.startswith(f"invalid_input: metadata can't have the key {key}.")


async def test_every_change_leaves_its_event_without_a_name_in_it(tools, archive):
    chloe = await tools.entity("Chloe", metadata={"secret": "tea"})
    await tools("entity_update", entity_id=chloe, canonical_name="Chloe Martin", metadata={"secret": "coffee"})
    await tools("entity_get", entity_id=chloe)
    await tools("entity_resolve", name="Chloe")
    trail = await archive.events(tools.tenant)
    assert [(each["event_type"], each["entity_type"], each["entity_id"]) for each in trail] == [
        ("entity_created", "entity", chloe),
        ("entity_updated", "entity", chloe),
    ]
    payloads = [json.loads(each["payload"]) for each in trail]
    assert payloads[0]["entity_type"] == "person"
    assert payloads[1]["fields"] == ["canonical_name", "metadata"]
    assert "Chloe" not in json.dumps(payloads)
    assert "secret" not in json.dumps(payloads)


async def test_a_request_sent_again_with_its_key_makes_one_entity(tools, archive):
    asked = {"canonical_name": "Chloe", "entity_type": "person", "idempotency_key": "k"}
    answers = await asyncio.gather(*(tools("entity_create", **asked) for _ in range(20)))
    assert all(each == answers[0] for each in answers)
    assert await archive.count("entities", tools.tenant) == 1
    message = await tools.refusal("entity_create", **{**asked, "canonical_name": "Ada"})
    assert message.startswith("conflict: the idempotency_key k was used with other arguments.")
    changed = {"entity_id": answers[0]["id"], "metadata": {"a": 1}, "idempotency_key": "u"}
    assert await tools("entity_update", **changed) == await tools("entity_update", **changed)
    assert await archive.count("memory_events", tools.tenant) == 2


async def test_of_twenty_who_create_one_name_at_once_one_does_and_the_others_are_told_which(tools, archive):
    names = ["Chloe", "CHLOE", "chloe", "cHLOE"] * 5
    asked = [{"canonical_name": name, "entity_type": "person"} for name in names]
    answers = await asyncio.gather(
        *(tools.client.call_tool("entity_create", each, raise_on_error=False) for each in asked)
    )
    (made,) = [each.structured_content["id"] for each in answers if not each.is_error]
    for refused in (each for each in answers if each.is_error):
        assert f"exists: entity_id {made}." in refused.content[0].text
    assert await archive.count("entities", tools.tenant) == await archive.count("memory_events", tools.tenant) == 1


NAMES = {
    "Greek": "Ἀριστοτέλης",
    "Arabic, right to left": "محمد بن سلمان",
    "Hebrew with a mark": "\u200fדוד בן־גוריון",
    "Chinese": "李明",
    "Japanese": "ひらがな カタカナ",
    "Hindi": "अमिताभ बच्चन",
    "emoji": "👩‍👩‍👧‍👦 family 🚀",
    "ligatures": "ﬁancé",
    "wide": "Ｃｈｌｏｅ",
    "one that grows when it is folded": "ﷺ" * 300,
    "only marks": "\u0301\u0302",
    "only a sign that folds to a blank": "¨",
    "wildcards": "100%_\\",
    "quotes": 'O\'Brien "the" $$ ; drop table entities; --',
    "long": "x" * 512,
    "invisible": "\u200b",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
async def test_a_name_of_any_script_is_kept_and_found_exactly(tools, archive, name):
    made = await tools.entity(name, aliases=[f"{name[:200]} alias"])
    assert (await archive.row("entity", made))["canonical_name"] == name
    for asked in (name, name.upper() if name.upper().lower() == name else name, f"  {name}\x00 "):
        (found, *_) = await tools("entity_resolve", name=asked, enable_fuzzy=True)
        assert (found["entity_id"], found["name_match"], found["score"]) == (made, "exact", 100.0)
    (alias,) = await tools("entity_resolve", name=f"{name[:200]} alias")
    assert (alias["entity_id"], alias["name_match"]) == (made, "alias")
    (part,) = await tools("entity_resolve", name=name[: (len(name) + 1) // 2])
    assert part["entity_id"] == made


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"canonical_name": "\x00 \n"}, "canonical_name is blank"),
        ({"canonical_name": "x" * 10_000}, "canonical_name has 10000 characters"),
        ({"canonical_name": "𠀀" * 400}, "canonical_name has 400 characters in 1600 bytes"),
        ({"aliases": [" "]}, "alias is blank"),
        ({"aliases": ["y" * 10_000]}, "alias has 10000 characters"),
        ({"aliases": [f"a{n}" for n in range(1001)]}, "1001 aliases are too many"),
        ({"aliases": [1]}, "aliases"),
        ({"metadata": "no object"}, "metadata"),
        ({"metadata": {"a": "x" * 70_000}}, "metadata is too large"),
        ({"metadata": {"a": json.loads("[" * 40 + "]" * 40)}}, "metadata is nested too deeply"),
    ],
)
async def test_what_can_not_be_a_name_or_metadata_is_refused(tools, archive, arguments, about):
    message = await tools.refusal(
        "entity_create", **{"canonical_name": "Chloe", "entity_type": "person", **arguments}
    )
    assert message.startswith("invalid_input: ")
    assert about in message
    assert await archive.count("entities", tools.tenant) == 0


def test_numbers_that_are_none_are_no_metadata():
    for number in (float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            NewEntity(canonical_name="x", entity_type=EntityType.OTHER, metadata={"a": [number]})


TEXTS = st.text(max_size=60) | st.sampled_from(list(NAMES.values()))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=TEXTS, alias=TEXTS, value=TEXTS)
async def test_row_25_any_text_is_a_name_or_refused_and_what_is_a_name_is_found(memory, engine, name, alias, value):
    caller = Caller(tenant=f"t-{uuid.uuid4().hex}", butler=memory.butler)
    try:
        entity = NewEntity(
            canonical_name=name, entity_type=EntityType.OTHER, aliases=(alias,), metadata={value: value}
        )
    except InvalidInput:
        return
    made = await entities.create(memory, caller, entity, REQUEST)
    hints = ResolutionHints(topic=value, mentioned_with=(alias,))
    (found,) = await entities.resolve(memory, caller, name, None, hints, fuzzy=True)
    assert (str(found.candidate.id), found.candidate.match) == (made["id"], "exact")
    (known,) = await entities.resolve(memory, caller, alias, None, hints, fuzzy=True)
    assert str(known.candidate.id) == made["id"]


ON_AN_ID: dict[str, dict[str, object]] = {
    "entity_get": {"entity_id": "foreign"},
    "entity_update": {"entity_id": "foreign", "metadata": {"a": 1}},
    "entity_merge": {"source_entity_id": "foreign", "target_entity_id": "own"},
    "entity_merge the other way": {"source_entity_id": "own", "target_entity_id": "foreign"},
    "memory_store_fact": {"subject": "s", "predicate": "p", "content": "c", "entity_id": "foreign"},
}


@pytest.mark.parametrize("call", ON_AN_ID)
async def test_row_29_another_tenants_entity_is_not_there_for_any_tool(tools, stranger, archive, call):
    own, foreign = await tools.entity("Ada"), await stranger.entity("Ada")
    await stranger.fact("tea", entity_id=foreign)
    before = [await archive.everything(each.tenant) for each in (tools, stranger)]
    ids = {"own": own, "foreign": foreign}
    arguments = {name: ids.get(str(value), value) for name, value in ON_AN_ID[call].items()}
    message = await tools.refusal(call.split()[0], **arguments)
    assert message.startswith(f"not_found: the entity {foreign} does not exist.")
    assert [await archive.everything(each.tenant) for each in (tools, stranger)] == before


async def test_row_29_a_name_is_looked_up_in_ones_own_tenant_alone(tools, stranger):
    foreign = await stranger.entity("Ada Lovelace", aliases=["Countess"])
    for name in ("Ada Lovelace", "Countess", "Ada", "love", "Adda Lovelacce"):
        assert await tools("entity_resolve", name=name, enable_fuzzy=True) == []
        hints = {"domain_scores": {foreign: 50}, "topic": "engines"}
        assert await tools("entity_resolve", name=name, context_hints=hints) == []
    own = await tools.entity("Ada Lovelace")
    assert [each["entity_id"] for each in await tools("entity_resolve", name="ada")] == [own]


async def test_a_tenant_may_name_itself_and_no_other(tools, stranger):
    own = await tools.entity("Ada", tenant_id=tools.tenant)
    for name, arguments in (
        ("entity_create", {"canonical_name": "Grace", "entity_type": "person"}),
        ("entity_get", {"entity_id": own}),
        ("entity_update", {"entity_id": own, "aliases": []}),
        ("entity_resolve", {"name": "Ada"}),
        ("entity_merge", {"source_entity_id": own, "target_entity_id": own}),
    ):
        message = await tools.refusal(name, **arguments, tenant_id=stranger.tenant)
        assert message.startswith("forbidden: your credentials are for another tenant")
    assert await tools("entity_get", entity_id=own, tenant_id="")


async def test_ids_that_are_none_are_refused_with_what_to_send(tools):
    for name, arguments in (
        ("entity_get", {"entity_id": "Chloe"}),
        ("entity_update", {"entity_id": "5", "aliases": []}),
        ("entity_merge", {"source_entity_id": "a", "target_entity_id": "b"}),
        ("entity_resolve", {"name": "x", "context_hints": {"domain_scores": {"Chloe": 1}}}),
    ):
        message = await tools.refusal(name, **arguments)
        assert message.startswith("invalid_input: ")
        assert "is not an id. Send an entity_id from entity_resolve or entity_create." in message


async def test_a_change_of_nothing_can_not_be_made():
    with pytest.raises(InvalidInput, match="the change is empty"):
        EntityChange()


async def test_the_database_itself_keeps_names_apart_and_kinds_few(tools, archive):
    """Scenario: Entities table indexes and constraints"""
    await tools.entity("Chloe")
    insert = "insert into entities (tenant_id, canonical_name, entity_type) values ($1, $2, $3)"
    for name, kind, refused in (
        ("Chloe", "person", "entities_name_key"),
        ("cHLOE", "person", "entities_live_name_key"),
        ("Ada", "ghost", "entities_entity_type_known"),
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match=refused):
            await archive.connection.execute(insert, tools.tenant, name, kind)
