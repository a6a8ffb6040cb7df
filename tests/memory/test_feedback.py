"""Feedback on memories: confirmations, marks, forgetting and restoring."""

import asyncio
import json
import math
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.modules.memory.domain.decay import effective_confidence
from butlers.modules.memory.store import rules as rule_store

NOW = datetime(2026, 7, 28, 12, tzinfo=UTC)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.floats(0, 1),
    st.sampled_from([0.0, 0.002, 0.008, 0.01, 0.03, 0.1]) | st.floats(0, 5),
    st.none() | st.integers(-(10**9), 10**10).map(lambda seconds: NOW - timedelta(seconds=seconds / 7)),
)
async def test_the_database_and_python_agree_on_what_is_still_believed(archive, confidence, rate, confirmed_at):
    (row,) = await archive.rows(
        "select effective_confidence($1, $2, $3, $4) as left", confidence, rate, confirmed_at, NOW
    )
    expected = effective_confidence(confidence, rate, confirmed_at, NOW)
    assert math.isclose(row["left"], expected, rel_tol=1e-9, abs_tol=1e-300)


async def test_a_memory_unconfirmed_for_a_century_breaks_no_search(tools, archive):
    """PostgreSQL raises an underflow error for a tiny number, and every search computes it."""
    old, new = await tools.fact(permanence="ephemeral"), await tools.fact(subject="somebody")
    await archive.age("fact", old, 36_500)
    assert await tools.ids("memory_search", query="blue") == await tools.ids("memory_recall", topic="blue") == [new]
    assert set(await tools.ids("memory_search", query="blue", min_confidence=0)) == {old, new}
    assert (await tools("memory_get", type="fact", id=old))["confidence"] < 1e-9
    assert (await tools("memory_stats"))["facts"]["confidence_distribution"]["0.0-0.2"] == 1


async def test_confirming_a_fact_restarts_its_decay(tools, archive):
    """Scenario: Confirm fact resets decay clock
    Scenario: Confirm memory resets decay timer
    """
    fact, rule = await tools.fact(permanence="volatile"), await tools.rule()
    for kind, memory_id, whole in (("fact", fact, 1.0), ("rule", rule, 0.5)):
        await archive.age(kind, memory_id, 20)
        assert (await tools("memory_get", type=kind, id=memory_id))["confidence"] < whole * 0.9
        answer = await tools("memory_confirm", type=kind, id=memory_id)
        assert (answer["id"], answer["memory_type"], answer["confidence"]) == (memory_id, kind, whole)
        record = await tools("memory_get", type=kind, id=memory_id)
        assert record["confidence"] == pytest.approx(whole, abs=1e-4)
        assert record["last_confirmed_at"] == answer["last_confirmed_at"]
        assert record["stored_confidence"] == whole


async def test_an_episode_can_not_be_confirmed(tools, memory):
    """Scenario: Confirm episode rejected"""
    answer = await tools("memory_store_episode", content="x", butler=memory.butler)
    message = await tools.refusal("memory_confirm", type="episode", id=answer["id"])
    assert message.startswith("invalid_input: an episode can't be confirmed.")


@pytest.mark.parametrize("kind", ["fact", "rule"])
async def test_confirming_what_fades_ends_its_fading_at_once(tools, archive, kind):
    memory_id = await (tools.fact() if kind == "fact" else tools.rule())
    await archive.change(kind, memory_id, metadata="""metadata || '{"status": "fading", "kept": 1}'""")
    await archive.change(kind, memory_id, last_confirmed_at="now() - interval '50 days'")
    (found,) = await tools("memory_search", query="blue or ask", types=[kind])
    assert found["lifecycle"] == "fading"
    await tools("memory_confirm", type=kind, id=memory_id)
    assert json.loads((await archive.row(kind, memory_id))["metadata"]) == {"kept": 1}
    (found,) = await tools("memory_search", query="blue or ask", types=[kind])
    assert found["lifecycle"] == "active"


async def test_a_row_that_arrives_as_fading_is_kept_as_active_and_shown_as_fading(tools, archive):
    fact = await tools.fact()
    await archive.change("fact", fact, validity="'fading'")
    row = await archive.row("fact", fact)
    assert (row["validity"], json.loads(row["metadata"])) == ("active", {"status": "fading"})
    assert (await tools("memory_get", type="fact", id=fact))["lifecycle"] == "fading"
    assert await tools.ids("memory_search", query="blue") == [fact]


@pytest.mark.parametrize("state", ["retracted", "superseded", "expired"])
async def test_a_fact_that_is_not_believed_any_more_is_neither_confirmed_nor_changed(tools, archive, state):
    fact = await tools.fact()
    await archive.change("fact", fact, validity=f"'{state}'")
    before = await archive.everything(tools.tenant)
    message = await tools.refusal("memory_confirm", type="fact", id=fact)
    hint = {"superseded": "Use the fact that superseded it"}.get(
        state, "Store a new fact instead, or restore this one."
    )
    assert message.startswith(f"conflict: the fact {fact} is {state}. {hint}")
    assert await archive.everything(tools.tenant) == before
    assert (await tools("memory_get", type="fact", id=fact))["lifecycle"] == state


async def test_a_forgotten_rule_is_neither_confirmed_nor_marked(tools, archive):
    rule = await tools.rule()
    await tools("memory_forget", type="rule", id=rule)
    before = await archive.everything(tools.tenant)
    for tool, arguments in (
        ("memory_confirm", {"type": "rule", "id": rule}),
        ("memory_mark_helpful", {"rule_id": rule}),
        ("memory_mark_harmful", {"rule_id": rule, "reason": "x"}),
    ):
        assert (await tools.refusal(tool, **arguments)).startswith(f"conflict: the rule {rule} is forgotten.")
    assert await archive.everything(tools.tenant) == before


async def test_a_helpful_mark_counts_and_is_kept(tools, archive):
    """Scenario: Mark rule helpful increments counts
    Scenario: Mark helpful increments counts and recalculates effectiveness
    Scenario: Rule application recorded
    """
    rule = await tools.rule()
    await archive.change("rule", rule, success_count="4", applied_count="6", effectiveness_score="0.66")
    answer = await tools("memory_mark_helpful", rule_id=rule)
    assert (answer["success_count"], answer["applied_count"], answer["harmful_count"]) == (5, 7, 0)
    assert answer["effectiveness_score"] == pytest.approx(5 / 7)
    row = await archive.row("rule", rule)
    assert (row["success_count"], row["applied_count"]) == (5, 7)
    assert row["last_applied_at"] == row["last_evaluated_at"] > row["created_at"]
    (kept,) = await archive.rows("select * from rule_applications where tenant_id = $1", tools.tenant)
    assert (str(kept["rule_id"]), kept["outcome"], kept["actor"]) == (rule, "helpful", "local")


async def test_a_harmful_mark_weighs_four_successes_and_keeps_its_reason(tools, archive):
    """Scenario: Mark rule harmful with reason
    Scenario: Mark harmful increments counts with 4x penalty formula
    """
    rule = await tools.rule()
    await archive.change("rule", rule, success_count="8", applied_count="8")
    answer = await tools("memory_mark_harmful", rule_id=rule, reason="caused incorrect response")
    assert (answer["harmful_count"], answer["applied_count"], answer["success_count"]) == (1, 9, 8)
    assert answer["effectiveness_score"] == pytest.approx(8 / (8 + 4 * 1 + 0.01))
    await tools("memory_mark_harmful", id=rule, reason=" and again\x00 ")
    await tools("memory_mark_harmful", id=rule, reason="")
    row = await archive.row("rule", rule)
    assert json.loads(row["metadata"])["harmful_reasons"] == ["caused incorrect response", "and again"]
    kept = await archive.rows(
        "select outcome, context from rule_applications where tenant_id = $1 order by applied_at", tools.tenant
    )
    assert [each["outcome"] for each in kept] == ["harmful"] * 3
    assert json.loads(kept[0]["context"]) == {"reason": "caused incorrect response", "evidence": "none"}


async def test_the_fifth_success_makes_a_candidate_established(tools):
    """Scenario: Rule promotion from candidate to established"""
    rule = await tools.rule()
    levels = [(await tools("memory_mark_helpful", rule_id=rule))["maturity"] for _ in range(6)]
    assert levels == ["candidate"] * 4 + ["established"] * 2


async def test_fifteen_successes_and_thirty_days_make_it_proven(tools, archive):
    """Scenario: Rule promotion from established to proven"""
    rule = await tools.rule()
    await archive.change(
        "rule", rule, maturity="'established'", success_count="14", applied_count="14", effectiveness_score="1"
    )
    assert (await tools("memory_mark_helpful", rule_id=rule))["maturity"] == "established", "too young"
    await archive.age("rule", rule, 30)
    answer = await tools("memory_mark_helpful", rule_id=rule)
    assert (answer["maturity_before"], answer["maturity"]) == ("established", "proven")


async def test_harm_takes_an_established_rule_back(tools, archive):
    """Scenario: Rule demotion from established to candidate"""
    rule = await tools.rule()
    await archive.change("rule", rule, maturity="'established'", success_count="5", applied_count="5")
    answer = await tools("memory_mark_harmful", rule_id=rule)
    assert (answer["maturity"], answer["effectiveness_score"]) == ("candidate", pytest.approx(5 / 9.01))


async def test_harm_takes_a_proven_rule_back_one_step(tools, archive):
    """Scenario: Rule demotion from proven to established"""
    rule = await tools.rule()
    await archive.change("rule", rule, maturity="'proven'", success_count="2", applied_count="15")
    answer = await tools("memory_mark_harmful", rule_id=rule)
    assert answer["effectiveness_score"] < 0.6
    assert answer["maturity"] == "established"


async def test_the_third_harm_marks_a_rule_for_inversion_and_it_is_no_advice_any_more(tools, memory):
    """Scenario: Anti-pattern inversion trigger"""
    rule = await tools.rule("Send messages at night")
    marks = [await tools("memory_mark_harmful", rule_id=rule, reason="woke the user") for _ in range(3)]
    assert [mark["needs_inversion"] for mark in marks] == [False, False, True]
    assert (await tools("memory_get", type="rule", id=rule))["metadata"]["needs_inversion"] is True
    assert await tools("memory_recall", topic="send messages at night") == []
    context = await tools("memory_context", trigger_prompt="send messages at night", butler=memory.butler)
    assert "Send messages" not in context
    helped = [await tools("memory_mark_helpful", rule_id=rule) for _ in range(30)]
    assert {mark["maturity"] for mark in helped} == {"candidate"}
    assert helped[-1]["success_count"] == 30


async def test_a_hundred_marks_at_once_count_a_hundred(tools, archive):
    rule = await tools.rule()
    tools_called = ["memory_mark_helpful", "memory_mark_harmful"] * 20
    await asyncio.gather(*(tools(name, rule_id=rule) for name in tools_called))
    row = await archive.row("rule", rule)
    assert (row["applied_count"], row["success_count"], row["harmful_count"]) == (40, 20, 20)
    assert await archive.count("rule_applications", tools.tenant) == 40
    assert await archive.count("memory_events", tools.tenant, "event_type like 'rule_marked%'") == 40


@pytest.mark.parametrize("tool", ["memory_mark_helpful", "memory_mark_harmful"])
async def test_a_rule_that_is_not_there_can_not_be_marked(tools, stranger, archive, tool):
    foreign = await stranger.rule()
    before = await archive.everything(stranger.tenant)
    for rule in (str(uuid.uuid4()), foreign, await tools.fact()):
        assert (await tools.refusal(tool, rule_id=rule)).startswith(f"not_found: no rule {rule}.")
    assert await archive.everything(stranger.tenant) == before


async def test_a_forgotten_fact_is_retracted_and_not_recalled(tools, archive):
    """Scenario: Forget a fact
    Scenario: Fact transitions to retracted via forget
    """
    fact = await tools.fact()
    answer = await tools("memory_forget", type="fact", id=fact)
    assert answer == {"id": fact, "memory_type": "fact", "state": "retracted", "forgotten": True}
    assert (await archive.row("fact", fact))["validity"] == "retracted"
    assert await tools("memory_recall", topic="blue") == []
    record = await tools("memory_get", type="fact", id=fact)
    assert (record["lifecycle"], record["content"]) == ("retracted", "blue")


async def test_a_forgotten_rule_is_flagged(tools, archive):
    """Scenario: Forget rule sets metadata flag"""
    rule = await tools.rule()
    await tools("memory_forget", type="rule", id=rule)
    assert json.loads((await archive.row("rule", rule))["metadata"])["forgotten"] is True
    assert await tools("memory_search", query="ask", min_confidence=0) == []
    assert (await tools("memory_get", type="rule", id=rule))["lifecycle"] == "forgotten"


async def test_a_forgotten_episode_is_over_now(tools, archive, memory):
    """Scenario: Forget episode sets immediate expiry"""
    answer = await tools("memory_store_episode", content="tea", butler=memory.butler)
    await tools("memory_forget", type="episode", id=answer["id"])
    (row,) = await archive.rows("select expires_at <= now() as over from episodes where id = $1", answer["id"])
    assert row["over"]
    assert (await tools("memory_get", type="episode", id=answer["id"]))["lifecycle"] == "forgotten"


@pytest.mark.parametrize("kind", ["fact", "rule", "episode"])
async def test_forgetting_twice_is_forgetting_once_and_restoring_brings_it_back(tools, archive, memory, kind):
    memory_id = (await _store(tools, memory))[kind]
    before = await archive.row(kind, memory_id)
    await tools("memory_forget", type=kind, id=memory_id)
    assert (await tools("memory_forget", type=kind, id=memory_id))["already"] is True
    assert await archive.count("memory_events", tools.tenant, f"event_type = '{kind}_forgotten'") == 1
    answer = await tools("memory_restore", type=kind, id=memory_id)
    assert answer == {"id": memory_id, "memory_type": kind, "restored": True}
    assert await tools.ids("memory_search", query="tea", types=[kind]) == [memory_id]
    after = await archive.row(kind, memory_id)
    moments = {"last_confirmed_at"}
    assert {k: v for k, v in after.items() if k not in moments} == {
        k: v for k, v in before.items() if k not in moments
    }
    assert (await tools.refusal("memory_restore", type=kind, id=memory_id)).startswith("conflict: ")


async def _store(tools, memory) -> dict[str, str]:
    episode = await tools("memory_store_episode", content="tea", butler=memory.butler)
    return {"fact": await tools.fact("tea"), "rule": await tools.rule("Offer tea"), "episode": episode["id"]}


async def test_a_fact_whose_key_is_taken_by_now_is_not_restored(tools, archive):
    fact = await tools.fact("green")
    await tools("memory_forget", type="fact", id=fact)
    await tools.fact("blue")
    message = await tools.refusal("memory_restore", type="fact", id=fact)
    assert message.startswith(f"conflict: another fact has the key of {fact}.")
    assert (await archive.row("fact", fact))["validity"] == "retracted"


async def test_a_superseded_fact_can_not_be_forgotten(tools, archive):
    old, _ = await tools.fact("green"), await tools.fact("blue")
    assert (await tools.refusal("memory_forget", type="fact", id=old)).startswith(
        f"conflict: the fact {old} is superseded."
    )
    assert (await archive.row("fact", old))["validity"] == "superseded"


async def test_the_history_of_a_fact_tells_what_came_before_and_after(tools):
    ids = [await tools.fact(color) for color in ("red", "green", "blue")]
    await tools("memory_confirm", type="fact", id=ids[2])
    history = await tools("memory_history", type="fact", id=ids[1])
    assert [event["event_type"] for event in history["events"]] == ["fact_created", "fact_superseded"]
    assert [each["id"] for each in history["superseded"]] == ids[:1]
    assert [each["id"] for each in history["superseded_by"]] == ids[2:]
    assert (history["id"], history["memory_type"]) == (ids[1], "fact")


async def test_a_long_history_says_so_and_is_read_page_by_page(tools, stranger, archive):
    fact, other = await tools.fact(), await tools.fact(predicate="drink")
    # Twenty events each moment: the order within one moment has to be the same on every page.
    await archive.connection.execute(
        "insert into memory_events (tenant_id, event_type, entity_type, entity_id, occurred_at)"
        " select $1, 'fact_confirmed', 'fact', $2, now() + n / 20 * interval '1 second'"
        " from generate_series(1, 2500) n",
        tools.tenant,
        fact,
    )
    page = await tools("memory_history", type="fact", id=fact)
    assert (len(page["events"]), page["total"], page["truncated"]) == (200, 2501, True)
    seen, pages = page["events"], 1
    while page["next_cursor"]:
        page = await tools("memory_history", type="fact", id=fact, cursor=page["next_cursor"], limit=300)
        seen, pages = seen + page["events"], pages + 1
    assert len({event["id"] for event in seen}) == len(seen) == 2501
    assert pages == 9
    assert [event["occurred_at"] for event in seen] == sorted(event["occurred_at"] for event in seen)
    assert (page["total"], page["truncated"], page["next_cursor"]) == (2501, False, None)
    for cursor in (other, "5"):
        message = await tools.refusal("memory_history", type="fact", id=fact, cursor=cursor)
        assert message.startswith("invalid_input: ")
        assert "next_cursor" in message
    theirs = await stranger.fact()
    message = await stranger.refusal("memory_history", type="fact", id=theirs, cursor=seen[0]["id"])
    assert message.startswith("invalid_input: the cursor is not from this memory's history.")


async def test_a_long_chain_of_facts_says_so(tools, archive):
    fact = await tools.fact()
    await archive.connection.execute(
        "with ids as (select n, case n when 0 then $2::uuid else gen_random_uuid() end as id"
        " from generate_series(0, 201) n)"
        " insert into facts (tenant_id, id, subject, predicate, content, validity, supersedes_id)"
        " select $1, i.id, 'user', 'color', 'old', 'superseded', b.id from ids i join ids b on b.n = i.n - 1",
        tools.tenant,
        fact,
    )
    history = await tools("memory_history", type="fact", id=fact)
    assert (len(history["superseded_by"]), history["chain_truncated"]) == (200, True)
    rest = await tools("memory_history", type="fact", id=history["superseded_by"][-1]["id"])
    assert (len(rest["superseded_by"]), len(rest["superseded"])) == (1, 200)


async def test_more_dead_letters_than_are_listed_are_counted(tools, archive, memory):
    await archive.connection.execute(
        "insert into episodes (tenant_id, butler, content, consolidation_status)"
        " select $1, $2, 'e', 'dead_letter' from generate_series(1, 120)",
        tools.tenant,
        memory.butler,
    )
    letters = await tools("memory_dead_letters")
    assert (len(letters["dead_letters"]), letters["total"]) == (100, 120)


async def test_a_rule_keeps_the_latest_reasons_and_not_thousands(tools, archive):
    rule = await tools.rule()
    for number in range(52):
        await tools("memory_mark_harmful", rule_id=rule, reason=f"reason {number}" + "x" * 1000)
    reasons = json.loads((await archive.row("rule", rule))["metadata"])["harmful_reasons"]
    assert len(reasons) == 50
    assert reasons[-1].startswith("reason 51")
    assert max(map(len, reasons)) == 1000


async def test_a_track_record_of_no_rule_is_none(memory, caller):
    async with memory.transaction(caller) as tx:
        assert await rule_store.lock_track_record(tx, caller, uuid.uuid4()) is None
