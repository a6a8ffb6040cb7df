"""Inversion of harmful rules: once, with new content and a new vector, and permanent."""

import asyncio
import json
import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from butlers.errors import Unavailable
from butlers.host.metrics import Metrics
from butlers.host.scheduler import Scheduler
from butlers.modules.memory import minilm
from butlers.modules.memory.domain.maturity import anti_pattern_content
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.operations import decay_sweep, feedback, management
from database.butler_processes import connected
from memory.memory_fixtures import REQUEST
from memory.scripted_model import separate_butler

REASONS = ("an allergic guest fell ill", "the kitchen was closed", "nobody had paid")
RULE = "Order seafood for the whole table"
WARNING = (
    "ANTI-PATTERN: Do NOT Order seafood for the whole table. This caused problems because: "
    "an allergic guest fell ill; the kitchen was closed; nobody had paid"
)


async def store_harmful_rule(tools, content=RULE, reasons=REASONS):
    """Store a rule, mark it harmful for each reason and return its id."""
    rule = await tools.rule(content)
    for reason in reasons:
        marked = await tools("memory_mark_harmful", rule_id=rule, reason=reason)
    assert marked["needs_inversion"]
    return rule


async def insert_harmful_rules(archive, tenant, number, **columns):
    """Insert rules that are due for inversion and return their ids."""
    values = {
        "tenant_id": "$1",
        "content": "'Open door ' || n",
        "harmful_count": "3",
        "metadata": """jsonb_build_object(
            'needs_inversion', true, 'harmful_reasons', jsonb_build_array('draught ' || n)
        )""",
        **columns,
    }
    rows = await archive.rows(
        f"insert into rules ({', '.join(values)}) select {', '.join(values.values())}"  # noqa: S608 — constants of the test
        " from generate_series(1, $2::int) n returning id::text",
        tenant,
        number,
    )
    return [row["id"] for row in rows]


async def inverted_ids(archive, tenant):
    """Return the ids of the inverted rules in the events, with repetitions."""
    events = await archive.events(tenant)
    return Counter(each["entity_id"] for each in events if each["event_type"] == "rule_inverted")


class PausedEmbedder:
    """The real model, which waits until `may_finish` is set."""

    def __init__(self, engine):
        self._engine, self.version = engine, engine.version
        self.embed, self.count_tokens = engine.embed, engine.count_tokens
        self.started, self.may_finish = asyncio.Event(), asyncio.Event()

    async def embed_batch(self, texts, **options):
        self.started.set()
        await self.may_finish.wait()
        return await self._engine.embed_batch(texts, **options)


class MissingEmbedder:
    """A model that is not installed, with the real error."""

    def __init__(self, engine):
        self.version, self.count_tokens = engine.version, engine.count_tokens

    async def embed(self, text, **_):
        raise Unavailable("the embedding model is not installed", hint="Install it.")

    async def embed_batch(self, texts, **_):
        return [await self.embed(text) for text in texts]


async def test_the_rule_becomes_a_warning_that_keeps_what_it_was(memory, caller, archive, tools):
    """Scenario: Rule inversion to anti-pattern"""
    rule = await store_harmful_rule(tools)
    before = await archive.row("rule", rule)
    await archive.change("rule", rule, metadata="""metadata || '{"status": "fading", "mine": 1}'""")
    swept = await decay_sweep.sweep(memory, caller)
    assert (swept["rules_inverted"], swept["rules_seen"]) == (1, 0)
    row = await archive.row("rule", rule)
    assert row["content"] == WARNING
    assert row["maturity"] == "anti_pattern"
    assert json.loads(row["metadata"]) == {
        "mine": 1,
        "original_content": RULE,
        "harmful_reasons": list(REASONS),
    }
    assert (row["permanence"], row["decay_rate"]) == ("permanent", 0)
    for name in ("harmful_count", "applied_count", "success_count", "effectiveness_score", "scope", "tags"):
        assert row[name] == before[name]
    assert row["last_evaluated_at"] > before["last_evaluated_at"]


async def test_a_rule_without_a_reason_says_that_there_is_none(memory, caller, archive, tools):
    rule = await tools.rule(RULE)
    for _ in range(3):
        await tools("memory_mark_harmful", rule_id=rule)
    await decay_sweep.sweep(memory, caller)
    assert (await archive.row("rule", rule))["content"] == anti_pattern_content(RULE, [])
    assert anti_pattern_content(RULE, []).endswith("This caused problems because: no reason was given")


async def test_the_warning_is_found_by_its_new_words_and_its_new_vector(memory, caller, archive, tools, engine):
    rule = await store_harmful_rule(tools)
    await tools.rule("Bring an umbrella when it rains")
    asked = {"types": ["rule"], "min_confidence": 0}
    assert await tools.ids("memory_search", query="allergic", mode="keyword", **asked) == []
    await decay_sweep.sweep(memory, caller)
    assert await tools.ids("memory_search", query="allergic", mode="keyword", **asked) == [rule]
    (first, *_) = await tools("memory_search", query=WARNING, mode="semantic", **asked)
    assert (first["id"], first["similarity"]) == (rule, pytest.approx(1.0, abs=1e-4))
    (row,) = await archive.rows(
        "select search_vector = to_tsvector('english', content) as words, embedding::text as vector,"
        " embedding_version_id as version from rules where id = $1",
        rule,
    )
    assert row["words"]
    assert row["version"] == engine.version.id
    assert math.dist(json.loads(row["vector"]), await engine.embed(WARNING)) < 1e-3


async def test_one_event_tells_of_the_inversion_and_not_what_it_said(memory, caller, archive, tools):
    rule = await store_harmful_rule(tools)
    for _ in range(3):
        await decay_sweep.sweep(memory, caller)
    (event,) = [each for each in await archive.events(caller.tenant) if each["event_type"] == "rule_inverted"]
    assert (event["entity_type"], event["entity_id"]) == ("rule", rule)
    assert (event["actor"], event["request_id"]) == ("somebody", caller.request_id)
    payload = json.loads(event["payload"])
    assert (payload["maturity"], payload["before"]["maturity"]) == ("anti_pattern", "candidate")
    assert (payload["permanence"], payload["before"]["permanence"]) == ("permanent", "standard")
    assert (payload["decay_rate"], payload["before"]["decay_rate"]) == (0, 0.01)
    assert "seafood" not in event["payload"]
    assert (await archive.row("rule", rule))["content"] == WARNING, "and not a warning of a warning"


async def test_any_number_of_harmful_rules_is_inverted_by_two_sweeps_at_once_each_once(memory, caller, archive):
    ids = await insert_harmful_rules(archive, caller.tenant, 120)
    both = await asyncio.gather(*(decay_sweep.sweep(memory, caller) for _ in range(2)))
    assert sum(each["rules_inverted"] for each in both) == 120
    assert await inverted_ids(archive, caller.tenant) == dict.fromkeys(ids, 1)
    rows = await archive.rows(
        "select content, metadata ->> 'original_content' as original, metadata ? 'needs_inversion' as waits"
        " from rules where tenant_id = $1",
        caller.tenant,
    )
    for row in rows:
        number = row["original"].removeprefix("Open door ")
        assert row["content"] == anti_pattern_content(f"Open door {number}", [f"draught {number}"])
        assert not row["waits"]


async def test_a_rule_that_is_forgotten_in_between_stays_forgotten_as_it_was(memory, caller, archive, tools, engine):
    rule = await store_harmful_rule(tools)
    slow = PausedEmbedder(engine)
    sweeping = asyncio.create_task(decay_sweep.sweep(replace(memory, embedder=slow), caller))
    await slow.started.wait()
    await management.forget(memory, caller, MemoryType.RULE, UUID(rule), REQUEST)
    slow.may_finish.set()
    assert (await sweeping)["rules_inverted"] == 0
    row = await archive.row("rule", rule)
    assert (row["content"], row["maturity"]) == (RULE, "candidate")
    assert json.loads(row["metadata"])["forgotten"] is True
    assert await inverted_ids(archive, caller.tenant) == {}
    await tools("memory_restore", memory_type="rule", memory_id=rule)
    assert await tools.ids("memory_recall", topic=RULE) == [], "it still waits to be a warning"
    assert (await decay_sweep.sweep(memory, caller))["rules_inverted"] == 1


@pytest.mark.parametrize("how", ["harmful", "helpful", "confirmed"])
async def test_a_mark_in_between_counts_and_the_rule_is_inverted_once(memory, caller, archive, tools, engine, how):
    rule = await store_harmful_rule(tools)
    slow = PausedEmbedder(engine)
    sweeping = asyncio.create_task(decay_sweep.sweep(replace(memory, embedder=slow), caller))
    await slow.started.wait()
    if how == "harmful":
        await feedback.mark_harmful(memory, caller, UUID(rule), "the bill was high", REQUEST)
    elif how == "helpful":
        await feedback.mark_helpful(memory, caller, UUID(rule), REQUEST)
    else:
        await feedback.confirm(memory, caller, MemoryType.RULE, UUID(rule), REQUEST)
    slow.may_finish.set()
    await sweeping
    await decay_sweep.sweep(memory, caller)
    row = await archive.row("rule", rule)
    assert row["maturity"] == "anti_pattern"
    assert await inverted_ids(archive, caller.tenant) == {rule: 1}
    assert json.loads(row["metadata"])["original_content"] == RULE
    counted = {"harmful": (4, 0, 4), "helpful": (4, 1, 3), "confirmed": (3, 0, 3)}[how]
    assert (row["applied_count"], row["success_count"], row["harmful_count"]) == counted
    if how == "harmful":
        assert json.loads(row["metadata"])["harmful_reasons"] == [*REASONS, "the bill was high"]


async def test_marks_and_sweeps_at_once_lose_no_mark_and_invert_once(memory, archive, tools, caller):
    for _ in range(10):
        rule = await store_harmful_rule(tools)
        marks = [feedback.mark_harmful(memory, caller, UUID(rule), None, REQUEST) for _ in range(4)]
        helps = [feedback.mark_helpful(memory, caller, UUID(rule), REQUEST) for _ in range(4)]
        await asyncio.gather(decay_sweep.sweep(memory, caller), *marks, decay_sweep.sweep(memory, caller), *helps)
        await decay_sweep.sweep(memory, caller)
        row = await archive.row("rule", rule)
        assert (row["harmful_count"], row["success_count"], row["applied_count"]) == (7, 4, 11)
        assert (row["maturity"], row["content"]) == ("anti_pattern", WARNING)
        assert (await inverted_ids(archive, caller.tenant))[rule] == 1
        assert "needs_inversion" not in json.loads(row["metadata"])


async def test_a_warning_never_decays_is_never_promoted_and_never_inverted_again(memory, caller, archive, tools):
    rule = await store_harmful_rule(tools)
    await decay_sweep.sweep(memory, caller)
    await archive.age("rule", rule, 20_000)
    await archive.change("rule", rule, last_confirmed_at="null")
    for _ in range(20):
        await tools("memory_mark_helpful", rule_id=rule)
    for _ in range(40):
        marked = await tools("memory_mark_harmful", rule_id=rule)
    assert (marked["maturity"], marked["needs_inversion"]) == ("anti_pattern", False)
    swept = await decay_sweep.sweep(memory, caller, capped=False)
    assert (swept["rules_inverted"], swept["rules_seen"], swept["rules_forgotten"]) == (0, 0, 0)
    record = await tools("memory_get", type="rule", id=rule)
    assert (record["content"], record["confidence"], record["lifecycle"]) == (WARNING, 0.5, "active")


async def test_a_warning_is_recalled_and_stands_in_the_context(memory, caller, tools):
    rule = await store_harmful_rule(tools)
    asked = {"trigger_prompt": "Shall I order seafood for the table?", "butler": memory.butler}
    assert await tools.ids("memory_recall", topic="order seafood") == []
    assert "seafood" not in str(await tools("memory_context", **asked))
    await decay_sweep.sweep(memory, caller)
    (recalled,) = await tools("memory_recall", topic="order seafood")
    assert (recalled["id"], recalled["maturity"], recalled["content"]) == (rule, "anti_pattern", WARNING)
    assert WARNING in str(await tools("memory_context", **asked))
    assert (await tools("memory_stats"))["rules"]["effectiveness"]["needs_inversion"] == 0


async def test_a_permanent_and_an_unbelieved_rule_are_inverted_as_well(memory, caller, archive):
    permanent = await insert_harmful_rules(archive, caller.tenant, 1, decay_rate="0", permanence="'permanent'")
    unbelieved = await insert_harmful_rules(archive, caller.tenant, 1, last_confirmed_at="now() - interval '9 years'")
    swept = await decay_sweep.sweep(memory, caller)
    assert (swept["rules_inverted"], swept["rules_forgotten"]) == (2, 0)
    assert await inverted_ids(archive, caller.tenant) == dict.fromkeys(permanent + unbelieved, 1)


async def test_a_dry_run_counts_harmful_rules_and_asks_no_model(memory, caller, archive, engine):
    await insert_harmful_rules(archive, caller.tenant, 3)
    before = await archive.everything(caller.tenant)
    preview = await decay_sweep.preview(replace(memory, embedder=MissingEmbedder(engine)), caller)
    assert preview["rules_inverted"] == 3
    assert await archive.everything(caller.tenant) == before


async def test_without_the_model_time_goes_on_and_the_sweep_fails_clearly(tmp_path, environment, engine):
    async with separate_butler(tmp_path, environment, engine) as own:
        memory, archive = own.memory, own.archive
        ada, bob = own.new_caller(), own.new_caller()
        for who in (ada, bob):
            await insert_harmful_rules(archive, who.tenant, 1)
            await archive.rows(
                "insert into facts (tenant_id, subject, predicate, content, confidence)"
                " values ($1, 'a', 'b', 'c', 0.01) returning id",
                who.tenant,
            )
        with pytest.raises(Unavailable, match="the embedding model is not installed") as raised:
            await decay_sweep.sweep(replace(memory, embedder=MissingEmbedder(engine)), ada, all_tenants=True)
        assert str(raised.value) == "unavailable: the embedding model is not installed. Install it."
        for who in (ada, bob):
            assert await archive.count("facts", who.tenant, "validity = 'expired'") == 1
            assert await archive.count("rules", who.tenant, "metadata ? 'needs_inversion'") == 1
        done = await decay_sweep.sweep(memory, ada, all_tenants=True)
        assert (done["rules_inverted"], done["facts_expired"]) == (2, 0)


def damaged_engine(home, at):
    """The real engine with a truncated model file."""
    path = minilm.graph_file(home / "models")
    (at / path.name).write_bytes(path.read_bytes()[:100_000])
    return EmbeddingEngine(at)


async def test_a_model_that_is_damaged_keeps_time_from_nothing(memory, caller, archive, home, tmp_path):
    await insert_harmful_rules(archive, caller.tenant, 1)
    await archive.rows(
        "insert into facts (tenant_id, subject, predicate, content, confidence)"
        " values ($1, 'a', 'b', 'c', 0.01) returning id",
        caller.tenant,
    )
    engine = await asyncio.to_thread(damaged_engine, home, tmp_path)
    with pytest.raises(Unavailable, match="the embedding model"):
        await decay_sweep.sweep(replace(memory, embedder=engine), caller)
    assert await archive.count("facts", caller.tenant, "validity = 'expired'") == 1


async def test_a_scheduled_sweep_without_the_model_fails_where_it_is_seen(tmp_path, environment, engine):
    async with separate_butler(tmp_path, environment, engine) as own:
        await insert_harmful_rules(own.archive, "ada", 1)
        module = own.butler.modules[0]
        assert isinstance(module, MemoryModule)
        module._memory = replace(own.memory, embedder=MissingEmbedder(engine))
        (job,) = [job for job in module.jobs() if job.name == "decay_sweep"]
        caller = own.butler.caller("default", actor="scheduler")
        await Scheduler(own.butler.database, caller, [job], Metrics())._tick(job.name, datetime.now(UTC))
        module._memory = own.memory
        (run,) = await own.archive.rows("select status, error from job_runs where job = 'decay_sweep'")
        assert run["status"] == "failed"
        assert run["error"] == "unavailable: the embedding model is not installed. Install it."


async def test_a_rule_that_somebody_holds_for_a_while_does_not_end_the_sweep(memory, butler, caller, archive):
    (rule,) = await insert_harmful_rules(archive, caller.tenant, 1)
    async with connected(butler.location.admin_dsn) as another:
        async with another.transaction():
            await another.execute("select from rules where id = $1 for update", rule)
            sweeping = asyncio.create_task(decay_sweep.sweep(memory, caller))
            await asyncio.sleep(2.4)
        assert (await sweeping)["rules_inverted"] == 1


async def test_one_tenants_harmful_rule_is_not_inverted_by_anothers_sweep(memory, caller, archive, tools, stranger):
    await store_harmful_rule(tools)
    await store_harmful_rule(stranger)
    before = await archive.everything(stranger.tenant)
    assert (await decay_sweep.sweep(memory, caller))["rules_inverted"] == 1
    assert await archive.everything(stranger.tenant) == before
