"""Undo of one call by its request id."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.errors import Conflict, Fault, NotFound
from butlers.modules.memory.domain.entities import EntityType, NewEntity
from butlers.modules.memory.domain.model import NewEpisode, NewRule
from butlers.modules.memory.operations import entities, management, undo, writing
from butlers.modules.memory.operations.idempotency import Request
from memory.acts import EPISODE, FACT, RULE, Actor, permanence, snapshot
from memory.lying_session import learn, start_session
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import new_fact


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


async def test_an_undone_confirmation_gives_back_confidence_time_fading_and_provenance(actor, tools, archive):
    fact = await tools.fact()
    await archive.age("fact", fact, 150)
    await archive.change(
        "fact", fact, confidence="0.7", metadata="""metadata || '{"status": "fading", "provenance": "distilled"}'"""
    )
    before = await archive.row("fact", fact)
    done = await actor.confirm(FACT, fact)
    assert (await archive.row("fact", fact))["confidence"] == 1.0
    await actor.undo(done)
    assert await archive.row("fact", fact) == before


async def test_a_correction_is_undone_by_retracting_the_new_fact_and_bringing_back_the_old_one(actor, tools, archive):
    old = await tools.fact("eats no meat", "Ada", "diet", tags=["food"], importance=8.0)
    before = await archive.row("fact", old)
    done = await actor.correct(old, "eats no meat and no fish")
    (new,) = await tools.ids("memory_search", query="what does Ada eat", types=["fact"])
    assert new != old
    await actor.undo(done)
    assert await archive.row("fact", old) == before
    assert (await archive.row("fact", new))["validity"] == "retracted"
    assert await tools.ids("memory_search", query="what does Ada eat", types=["fact"]) == [old]


async def test_what_is_undone_has_an_event_with_the_request_and_the_values(actor, tools, archive, caller):
    fact = await tools.fact()
    await archive.age("fact", fact, 10)
    confirmed_at = (await archive.row("fact", fact))["last_confirmed_at"]
    done = await actor.confirm(FACT, fact)
    undone, _ = await actor.answer(undo.undo, done)
    (event,) = await archive.rows(
        "select event_type, payload ->> 'undone' as undone, (payload ->> 'confidence')::float as confidence,"
        " (payload ->> 'last_confirmed_at')::timestamptz as confirmed_at, payload ->> 'via' as via"
        " from memory_events where tenant_id = $1 and request_id = $2",
        caller.tenant,
        undone,
    )
    assert dict(event) == {
        "event_type": "fact_confirmed_undone",
        "undone": done,
        "confidence": 1.0,
        "confirmed_at": confirmed_at,
        "via": "dashboard",
    }


async def test_undoing_twice_changes_nothing(actor, tools, archive, caller):
    fact = await tools.fact()
    done = await actor.forget(FACT, fact)
    assert (await actor.undo(done))["undone"]
    await actor.forget(FACT, fact)
    before = await archive.everything(caller.tenant)
    assert await actor.preview(done) is None
    assert await actor.undo(done) == {"request_id": done, "undone": [], "number": 0, "already": True}
    assert await archive.everything(caller.tenant) == before


async def test_fifty_undos_of_one_call_are_one(actor, tools, archive, caller):
    rule = await tools.rule()
    before = await archive.row("rule", rule)
    done = await actor.mark(rule, helpful=False, reason="too slow")
    answers = []
    for _ in range(5):
        answers += await asyncio.gather(*(actor.undo(done) for _ in range(10)))
    assert sum(bool(each["undone"]) for each in answers) == 1
    assert await archive.row("rule", rule) == before
    assert await archive.count("memory_events", caller.tenant, "payload ? 'undone'") == 1


async def test_the_same_request_undone_with_one_key_has_one_answer(memory, actor, tools):
    done = await actor.forget(FACT, await tools.fact())
    request = Request("undo", {"request": done}, "key-1")
    caller = replace(actor.caller, request_id=str(uuid4()))
    answers = [await undo.undo(memory, caller, done, request) for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["undone"]


@pytest.mark.parametrize("then", ["forget", "confirm", "edit", "supersede"])
async def test_what_changed_since_is_not_undone_and_the_message_says_what(actor, tools, archive, caller, then):
    fact = await tools.fact("eats no meat", "Ada", "diet")
    done = await actor.confirm(FACT, fact) if then != "edit" else await actor.edit(FACT, fact, importance=9.0)
    match then:
        case "forget":
            await actor.forget(FACT, fact)
            await actor.restore(FACT, fact)
        case "confirm":
            await actor.confirm(FACT, fact)
        case "edit":
            await actor.edit(FACT, fact, importance=2.0)
            await actor.edit(FACT, fact, importance=9.0)
        case "supersede":
            done = await actor.correct(fact, "eats everything")
            await tools.fact("eats nothing", "Ada", "diet")
    before = await archive.everything(caller.tenant)
    assert await actor.preview(done) is None
    with pytest.raises(Conflict, match=r"can't be undone: the fact .* (was|has) changed since"):
        await actor.undo(done)
    assert await archive.everything(caller.tenant) == before


async def test_acts_are_undone_from_the_last_to_the_first(actor, tools, archive):
    fact = await tools.fact()
    before = await archive.row("fact", fact)
    first = await actor.edit(FACT, fact, importance=7.0, tags=("one",))
    second = await actor.edit(FACT, fact, importance=8.0, tags=("two",))
    with pytest.raises(Conflict):
        await actor.undo(first)
    await actor.undo(second)
    assert (await archive.row("fact", fact))["tags"] == '["one"]'
    await actor.undo(first)
    assert await archive.row("fact", fact) == before


async def test_an_edit_can_be_undone_after_a_later_confirmation_that_touched_nothing_of_it(actor, tools, archive):
    fact = await tools.fact()
    edited = await actor.edit(FACT, fact, tags=("new",))
    await actor.confirm(FACT, fact)
    confirmed_at = (await archive.row("fact", fact))["last_confirmed_at"]
    await actor.undo(edited)
    row = await archive.row("fact", fact)
    assert (row["tags"], row["last_confirmed_at"]) == ("[]", confirmed_at)


async def test_a_forgotten_fact_whose_key_is_taken_stays_forgotten(actor, tools):
    fact = await tools.fact("blue")
    done = await actor.forget(FACT, fact)
    other = await tools.fact("red")
    assert await actor.preview(done) is None
    with pytest.raises(Conflict, match=f"the fact {other} has the key"):
        await actor.undo(done)


async def test_a_name_that_another_entity_took_is_not_given_back(actor, tools):
    ada = await tools.entity("Ada")
    done = await actor.change_entity(ada, canonical_name="Ada Lovelace")
    await tools.entity("Ada")
    with pytest.raises(Conflict, match="another entity has the name"):
        await actor.undo(done)


async def test_a_merge_can_not_be_undone_and_says_so(actor, tools):
    source, target = await tools.entity("Ada"), await tools.entity("Ada L.")
    done = await actor(entities.merge, UUID(source), UUID(target))
    assert await actor.preview(done) is None
    with pytest.raises(Conflict, match="a merge of entities is final"):
        await actor.undo(done)


async def test_a_request_that_changed_nothing_is_not_found(actor):
    with pytest.raises(NotFound):
        await actor.undo(str(uuid4()))


async def test_another_tenant_can_not_undo(actor, tools, memory, archive):
    fact = await tools.fact()
    done = await actor.forget(FACT, fact)
    with pytest.raises(NotFound):
        await Actor(memory, new_caller(memory)).undo(done)
    assert (await archive.row("fact", fact))["validity"] == "retracted"


async def test_an_event_from_before_it_told_its_state_is_not_undone(actor, tools, archive, caller):
    fact = await tools.fact()
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, request_id)"
        " values ($1, 'fact_confirmed', 'fact', $2, 'old')",
        caller.tenant,
        UUID(fact),
    )
    with pytest.raises(Conflict, match="does not tell the state before it"):
        await actor.undo("old")


async def test_a_whole_bulk_is_undone_together_or_not_at_all(memory, actor, tools, archive, caller):
    one, two = await tools.fact("tea", predicate="drink"), await tools.fact("figs", predicate="food")
    before = await snapshot(archive, caller.tenant)
    bulk = replace(caller, request_id="bulk-1")
    for each in (one, two):
        await management.forget(memory, bulk, FACT, UUID(each), REQUEST)
    assert len(await actor.preview("bulk-1")) == 2
    other = await tools.fact("water", predicate="drink")
    with pytest.raises(Conflict):
        await actor.undo("bulk-1")
    assert [(await archive.row("fact", each))["validity"] for each in (one, two)] == ["retracted"] * 2
    await tools("memory_forget", memory_type="fact", memory_id=other)
    await actor.undo("bulk-1")
    after = await snapshot(archive, caller.tenant)
    assert {key: after[key] for key in before} == before


async def test_a_retraction_is_undone_exactly(memory, actor, caller, tools, archive):
    liar = start_session(memory, caller)
    kept = await tools.fact("blue")
    episode = await liar.store_episode("She likes red")
    await learn(memory, caller, new_facts=[new_fact("red")], new_rules=["Offer red"])
    before = await snapshot(archive, caller.tenant)
    done = await actor.retract(episode)
    assert (await archive.row("fact", kept))["validity"] == "active"
    await actor.undo(done)
    assert await snapshot(archive, caller.tenant) == before


async def test_a_preview_tells_what_would_change_and_changes_nothing(actor, tools, archive, caller):
    fact = await tools.fact()
    done = await actor.edit(FACT, fact, importance=9.0, tags=("food",))
    before = await archive.everything(caller.tenant)
    (change,) = await actor.preview(done)
    assert (change["memory_type"], change["id"], change["events"]) == ("fact", fact, ["fact_edited"])
    assert change["changes"] == {
        "importance": {"from": 9.0, "to": 5.0},
        "tags": {"from": ["food"], "to": []},
    }
    assert await archive.everything(caller.tenant) == before


async def test_no_event_holds_a_word(actor, tools, archive, caller):
    fact, rule, ada = await tools.fact(), await tools.rule(), await tools.entity()
    requests = [
        await actor.edit(FACT, fact, tags=("sesame",)),
        await actor.mark(rule, helpful=False, reason="sesame"),
        await actor.change_entity(ada, canonical_name="sesame", aliases=("sesame seed",), metadata={"a": "sesame"}),
        await actor.correct(fact, "sesame"),
    ]
    for each in reversed(requests):
        await actor.undo(each)
    assert await archive.count("memory_events", caller.tenant, "payload::text like '%sesame%'") == 0


async def ids_in(archive, tenant, table):
    """Return the ids of a tenant's rows in a table."""
    rows = await archive.rows(f"select id::text from {table} where tenant_id = $1 order by id", tenant)  # noqa: S608
    return [row["id"] for row in rows]


async def seed(memory, caller, archive):
    """Store facts, rules, entities and an episode; some old, some distilled, some fading."""
    actor = Actor(memory, caller)
    for predicate in ("diet", "table", "phone"):
        await actor.store(f"something about her {predicate}", predicate, tags=("seed",))
    for content in ("Ask before booking", "Book trains early"):
        await actor(writing.store_rule, NewRule(content=content))
    ids = {kind: await ids_in(archive, caller.tenant, kind) for kind in ("facts", "rules")}
    created = [
        await entities.create(memory, caller, NewEntity(canonical_name=name, entity_type=EntityType.PERSON), REQUEST)
        for name in ("Ada", "Grace")
    ]
    ids["entities"] = [each["id"] for each in created]
    episode = await writing.store_episode(memory, caller, NewEpisode(content="a talk", butler=memory.butler), REQUEST)
    ids["episodes"] = [episode["id"]]
    for kind, each in (("fact", ids["facts"][0]), ("rule", ids["rules"][0])):
        await archive.age(kind, each, 120)
        changed = """metadata || '{"status": "fading", "provenance": "distilled"}'"""
        await archive.change(kind, each, metadata=changed, confidence="0.4")
    return ids


def _one(ids, kind, number):
    return ids[kind][number % len(ids[kind])]


ACTS = {
    "confirm fact": lambda a, i, n: a.confirm(FACT, _one(i, "facts", n)),
    "confirm rule": lambda a, i, n: a.confirm(RULE, _one(i, "rules", n)),
    "forget fact": lambda a, i, n: a.forget(FACT, _one(i, "facts", n)),
    "forget rule": lambda a, i, n: a.forget(RULE, _one(i, "rules", n)),
    "forget episode": lambda a, i, n: a.forget(EPISODE, _one(i, "episodes", n)),
    "restore fact": lambda a, i, n: a.restore(FACT, _one(i, "facts", n)),
    "restore rule": lambda a, i, n: a.restore(RULE, _one(i, "rules", n)),
    "restore episode": lambda a, i, n: a.restore(EPISODE, _one(i, "episodes", n)),
    "correct": lambda a, i, n: a.correct(_one(i, "facts", n), f"corrected to {n}"),
    "store": lambda a, _, n: a.store(f"stored as {n}", ("diet", "table", "seat")[n % 3], tags=("seed",)),
    "weigh fact": lambda a, i, n: a.edit(FACT, _one(i, "facts", n), importance=float(n % 11), tags=(f"tag {n}",)),
    "slow fact": lambda a, i, n: a.edit(
        FACT, _one(i, "facts", n), permanence=permanence(("permanent", "stable", "ephemeral")[n % 3])
    ),
    "slow rule": lambda a, i, n: a.edit(RULE, _one(i, "rules", n), permanence=permanence("stable"), tags=(f"{n}",)),
    "move": lambda a, i, n: a.move(_one(i, "facts", n), _one(i, "entities", n // 3)),
    "helpful": lambda a, i, n: a.mark(_one(i, "rules", n), helpful=True),
    "harmful": lambda a, i, n: a.mark(_one(i, "rules", n), helpful=False, reason=f"reason {n}" if n % 2 else None),
    "look": lambda a, i, n: a.look(FACT, _one(i, "facts", n)),
    "keep both": lambda a, i, n: a.keep_both("fact", _one(i, "facts", n), _one(i, "facts", n + 1)),
    "rename": lambda a, i, n: a.change_entity(_one(i, "entities", n), canonical_name=f"Somebody {n}"),
    "alias": lambda a, i, n: a.change_entity(_one(i, "entities", n), aliases=(f"alias {n}",), metadata={"n": n}),
}
STEPS = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 40)), min_size=1, max_size=8)


def _new_rows_are_gone(before, after):
    """Whether every row that an undone act added is a retracted fact, or its link to the fact that it superseded."""
    left = {"facts": '"validity": "retracted"', "memory_links": '"relation": "supersedes"'}
    return all(left[key[0]] in row for key, row in after.items() if key not in before)


async def check_undo(memory, archive, steps):
    caller = new_caller(memory)
    actor, ids = Actor(memory, caller), await seed(memory, caller, archive)
    done = []
    for name, number in steps:
        before = await snapshot(archive, caller.tenant)
        try:
            request_id = await ACTS[name](actor, ids, number)
        except Fault:
            assert await snapshot(archive, caller.tenant) == before
        else:
            done.append((request_id, before, await snapshot(archive, caller.tenant) != before))
    for request_id, before, has_changed in reversed(done):
        try:
            await actor.undo(request_id)
        except NotFound:
            assert not has_changed, "only an act that changed nothing, such as forgetting again, has no event"
        after = await snapshot(archive, caller.tenant)
        assert {key: after[key] for key in before} == before
        assert _new_rows_are_gone(before, after)


def test_undoing_random_acts_from_the_last_to_the_first_restores_every_row(loop, memory, archive):
    @settings(
        max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
    )
    @given(STEPS)
    def check(steps):
        loop.run_until_complete(check_undo(memory, archive, steps))

    check()


@pytest.mark.parametrize("record_type", ["idea", None, "fact"])
async def test_an_imported_event_about_anything_is_not_undone(actor, archive, caller, record_type):
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, request_id, payload)"
        """ values ($1, 'fact_confirmed', $2, gen_random_uuid(), 'imported', '{"before": {"confidence": 1}}')""",
        caller.tenant, record_type,
    )  # fmt: skip
    assert await actor.preview("imported") is None
    with pytest.raises(Conflict):
        await actor.undo("imported")
