"""Reverting an inversion: a warning becomes the rule it was, and that can be undone."""

import asyncio
import json
import math
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, NotFound
from butlers.modules.memory.operations import decay_sweep, rule_inversion, viewing_details
from butlers.modules.memory.operations.idempotency import Request
from memory.acts import RULE as KIND
from memory.acts import Actor
from memory.memory_fixtures import REQUEST
from memory.test_rule_inversion import REASONS, RULE, WARNING, insert_harmful_rules, store_harmful_rule


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


@pytest.fixture
async def warning(memory, caller, tools, archive):
    """A warning that was an established, stable rule."""
    rule = await store_harmful_rule(tools)
    await archive.change("rule", rule, maturity="'established'", permanence="'stable'", decay_rate="0.002")
    await decay_sweep.sweep(memory, caller)
    return rule


async def row_with_vector(archive, rule):
    (row,) = await archive.rows(
        "select r.*, embedding::text as vector, search_vector = to_tsvector('english', content) as has_own_words"
        " from rules r where id = $1",
        rule,
    )
    return row


async def test_a_warning_is_the_rule_it_was_again(actor, warning, archive, tools, engine):
    before = await archive.row("rule", warning)
    _, answer = await actor.answer(rule_inversion.revert_inversion, UUID(warning))
    assert answer == {"id": warning, "maturity": "established", "content": RULE}
    row = await row_with_vector(archive, warning)
    assert (row["content"], row["maturity"]) == (RULE, "established")
    assert (row["permanence"], row["decay_rate"]) == ("stable", 0.002)
    assert row["last_confirmed_at"] > before["last_confirmed_at"]
    assert json.loads(row["metadata"]) == {"warning_content": WARNING, "harmful_reasons": list(REASONS)}
    for name in ("harmful_count", "applied_count", "success_count", "effectiveness_score", "scope", "tags"):
        assert row[name] == before[name]
    assert row["has_own_words"]
    assert math.dist(json.loads(row["vector"]), await engine.embed(RULE)) < 1e-3
    assert await tools.ids("memory_recall", topic="order seafood") == [warning]
    assert await tools.ids("memory_search", query="allergic", mode="keyword", types=["rule"]) == []


async def test_one_event_tells_the_values_and_no_words(actor, warning, archive, caller):
    done = await actor(rule_inversion.revert_inversion, UUID(warning))
    (event,) = [
        each for each in await archive.events(caller.tenant) if each["event_type"] == "rule_inversion_reverted"
    ]
    payload = json.loads(event["payload"])
    assert (event["entity_id"], event["request_id"], payload["via"]) == (warning, done, "dashboard")
    assert (payload["maturity"], payload["before"]["maturity"]) == ("established", "anti_pattern")
    assert "seafood" not in event["payload"]


async def test_the_undo_gives_back_the_warning_with_its_vector(actor, warning, archive, engine):
    before = await row_with_vector(archive, warning)
    done = await actor(rule_inversion.revert_inversion, UUID(warning))
    await actor.undo(done)
    after = await row_with_vector(archive, warning)
    assert {name: after[name] for name in after if name not in {"embedding", "vector"}} == {
        name: before[name] for name in before if name not in {"embedding", "vector"}
    }
    assert math.dist(json.loads(after["vector"]), await engine.embed(WARNING)) < 1e-3
    assert (await actor.undo(done))["already"]


async def test_it_is_not_undone_over_a_mark_that_came_since(actor, warning, archive):
    done = await actor(rule_inversion.revert_inversion, UUID(warning))
    await actor.mark(warning, helpful=False)
    before = await archive.row("rule", warning)
    with pytest.raises(Conflict, match="changed since by rule_marked_harmful"):
        await actor.undo(done)
    assert await archive.row("rule", warning) == before


async def test_one_more_harm_makes_it_a_warning_again_and_that_can_be_reverted(
    actor, warning, archive, memory, caller
):
    await actor(rule_inversion.revert_inversion, UUID(warning))
    assert (await decay_sweep.sweep(memory, caller))["rules_inverted"] == 0
    await actor.mark(warning, helpful=False, reason="again")
    assert (await decay_sweep.sweep(memory, caller))["rules_inverted"] == 1
    row = await archive.row("rule", warning)
    assert (row["maturity"], row["content"]) == ("anti_pattern", f"{WARNING}; again")
    assert set(json.loads(row["metadata"])) == {"original_content", "harmful_reasons"}
    await actor(rule_inversion.revert_inversion, UUID(warning))
    assert (await archive.row("rule", warning))["content"] == RULE


@pytest.mark.parametrize(
    "before", [None, {}, {"maturity": [], "permanence": 5, "decay_rate": "x"}, {"maturity": "anti_pattern"}, [1]]
)
async def test_a_warning_without_a_true_event_becomes_a_candidate(actor, archive, memory, caller, before):
    """As inverted before events told the state, or imported with any event."""
    (rule,) = await insert_harmful_rules(archive, caller.tenant, 1, maturity="'proven'")
    await archive.change(
        "rule", rule, maturity="'anti_pattern'", content="'ANTI-PATTERN'", permanence="'permanent'", decay_rate="0",
        metadata="""'{"original_content": "Open door 1"}'""",
    )  # fmt: skip
    if before is not None:
        await archive.connection.execute(
            "insert into memory_events (tenant_id, event_type, entity_type, entity_id, payload)"
            " values ($1, 'rule_inverted', 'rule', $2, jsonb_build_object('before', $3::jsonb))",
            caller.tenant, rule, json.dumps(before),
        )  # fmt: skip
    await actor(rule_inversion.revert_inversion, UUID(rule))
    row = await archive.row("rule", rule)
    assert (row["content"], row["maturity"], row["permanence"], row["decay_rate"]) == (
        "Open door 1", "candidate", "standard", 0.01,
    )  # fmt: skip


async def test_only_a_live_warning_of_the_tenant_is_reverted(actor, warning, tools, stranger, archive):
    rule, foreign = await tools.rule(), await stranger.rule()
    with pytest.raises(Conflict, match="not an inverted one"):
        await actor(rule_inversion.revert_inversion, UUID(rule))
    for missing in (foreign, str(uuid4())):
        with pytest.raises(NotFound):
            await actor(rule_inversion.revert_inversion, UUID(missing))
    await actor.forget(KIND, warning)
    before = await archive.row("rule", warning)
    with pytest.raises(Conflict, match="is forgotten"):
        await actor(rule_inversion.revert_inversion, UUID(warning))
    assert await archive.row("rule", warning) == before


async def test_fifty_reverts_twice_each_with_one_killed_revert_once(memory, caller, warning, archive):
    requests = [(replace(caller, request_id=str(uuid4())), Request("revert", {}, str(uuid4()))) for _ in range(50)]
    calls = [
        asyncio.create_task(rule_inversion.revert_inversion(memory, each, UUID(warning), request))
        for each, request in requests * 2
    ]
    await asyncio.sleep(0.02)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    done = [each for each in answers if isinstance(each, dict)]
    assert 1 <= len(done) <= 2
    assert all(isinstance(each, Conflict | asyncio.CancelledError) for each in answers if each not in done)
    events = [each["event_type"] for each in await archive.events(caller.tenant)]
    assert events.count("rule_inversion_reverted") == 1
    assert (await archive.row("rule", warning))["content"] == RULE


async def test_the_curve_knows_when_it_was_a_warning(actor, warning, memory, caller):
    await actor(rule_inversion.revert_inversion, UUID(warning))
    details = await viewing_details.rule_details(memory, caller, UUID(warning))
    assert [each.reason for each in details.trail.confidence_changes] == [
        "became a rule again", "became a warning", "stored",
    ]  # fmt: skip
    assert "warning_content" not in details.rule["metadata"]


async def test_a_rule_is_reverted_once_by_two_calls_with_one_key(memory, caller, warning):
    request = replace(REQUEST, key=str(uuid4()))
    answers = [await rule_inversion.revert_inversion(memory, caller, UUID(warning), request) for _ in range(2)]
    assert answers[0] == answers[1]
