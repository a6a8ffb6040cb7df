"""Decay sweep: facts and rules fade, recover and expire exactly once, per tenant, and within the cap."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import asyncio
import json
import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers.errors import Conflict
from butlers.modules.memory.domain.decay import effective_confidence
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import decay_sweep, feedback, management
from butlers.modules.memory.store import facts, memories
from database.butler_processes import connected, eventually
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import separate_butler

FADING, EXPIRED = 0.2, 0.05
LOCK_WAITS = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
REQUIRED_COLUMNS = {
    "facts": {"subject": "gen_random_uuid()::text", "predicate": "'is'", "content": "'a secret number ' || n"},
    "rules": {"content": "'Keep the secret number ' || n"},
}
END_EVENT = {"facts": "fact_expired", "rules": "rule_forgotten"}
BOTH_TABLES = pytest.mark.parametrize("table", ["facts", "rules"])


async def insert(archive, tenant, table, number=1, **columns):
    """Insert memories with columns given as SQL expressions over `n`, and return their ids."""
    values = {"tenant_id": "$1", **REQUIRED_COLUMNS[table], **columns}
    rows = await archive.rows(
        f"insert into {table} ({', '.join(values)})"
        f" select {', '.join(values.values())} from generate_series(1, $2::int) n returning id::text",
        tenant,
        number,
    )
    return [row["id"] for row in rows]


async def insert_mixed(archive, tenant, **numbers):
    """Insert memories in four equal parts: unchanged, to fade, to expire and to recover."""
    for table, number in numbers.items():
        left = "(array[1.0, 0.1, 0.01, 0.5])[n % 4 + 1]"
        status = """case when n % 4 = 3 then '{"status": "fading"}'::jsonb else '{}' end"""
        await insert(archive, tenant, table, number, confidence=left, decay_rate="1e-18", metadata=status)


async def lifecycle(archive, table, memory_id):
    """Return the lifecycle state of a memory from its row."""
    (row,) = await archive.rows(f"select to_jsonb(m)::text as row from {table} m where id = $1", memory_id)
    row = json.loads(row["row"])
    if row.get("validity", "active") != "active":
        return row["validity"]
    if row["metadata"].get("forgotten"):
        return "expired"
    return row["metadata"].get("status", "active")


async def lifecycle_counts(archive, table, tenant):
    """Return the number of a tenant's memories in each lifecycle state."""
    state = "case when validity <> 'active' then validity" if table == "facts" else "case"
    rows = await archive.rows(
        f"select {state} when metadata -> 'forgotten' = 'true' then 'expired'"
        f" else coalesce(metadata ->> 'status', 'active') end as state, count(*) as number"
        f" from {table} where tenant_id = $1 group by 1",
        tenant,
    )
    return {row["state"]: row["number"] for row in rows}


async def event_counts(archive, tenant):
    """Return the number of a tenant's events of each type."""
    rows = await archive.rows(
        "select event_type, count(*) as number, count(distinct entity_id) as memories"
        " from memory_events where tenant_id = $1 group by 1",
        tenant,
    )
    assert all(row["number"] == row["memories"] for row in rows), "one event for each that changed"
    return {row["event_type"]: row["number"] for row in rows}


def expected_state(left):
    """Return the state a sweep gives a memory with this effective confidence."""
    if left < EXPIRED:
        return "expired"
    return "fading" if left < FADING else "active"


def with_confidence(memory, **confidence):
    """Return the memory with other keys of [modules.memory.confidence]."""
    config = memory.config.confidence.model_copy(update=confidence)
    return replace(memory, config=memory.config.model_copy(update={"confidence": config}))


async def wait_for_lock_waits(archive, number):
    """Wait until this many connections wait for a row lock."""

    async def has_waits():
        return await archive.connection.fetchval(LOCK_WAITS) >= number

    await eventually(has_waits, "a row lock to be waited for")


@BOTH_TABLES
async def test_each_side_of_a_threshold_is_judged_exactly(memory, caller, archive, table):
    """Scenario: Decay sweep threshold transitions
    Scenario: Fact transitions to expired via decay sweep
    Scenario: Fact transitions to fading via decay sweep
    """
    expected = {
        0.0: "expired",
        math.nextafter(0.05, 0): "expired",
        0.05: "fading",
        math.nextafter(0.2, 0): "fading",
        0.2: "active",
        1.0: "active",
    }
    # The decay is too small to matter between here and the sweep.
    planted = {
        confidence: (await insert(archive, caller.tenant, table, confidence=f"{confidence!r}", decay_rate="1e-18"))[0]
        for confidence in reversed(expected)
    }
    await decay_sweep.sweep(memory, caller)
    assert {
        confidence: await lifecycle(archive, table, memory_id) for confidence, memory_id in planted.items()
    } == expected
    if table == "facts":
        rows = await archive.rows("select validity from facts where id = any($1)", [planted[0.05], planted[0.2]])
        assert [row["validity"] for row in rows] == ["active", "active"], "fading is no validity of its own"


AGES = st.integers(-400 * 86_400, -3_600) | st.integers(0, 4_000 * 86_400)
MEMORIES = st.tuples(
    st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]) | st.floats(0, 1),
    st.sampled_from([0.0, 0.002, 0.008, 0.01, 0.03, 0.1]) | st.floats(1e-18, 5),
    st.none() | AGES,
    st.booleans(),
)


@BOTH_TABLES
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(MEMORIES, min_size=1, max_size=25))
async def test_a_sweep_decides_as_the_formula_does_for_any_confidence_rate_and_age(memory, archive, table, some):
    caller = new_caller(memory)
    now = datetime.now(UTC)
    planted = []
    for confidence, rate, seconds, faded in some:
        at = now - timedelta(seconds=seconds) if seconds is not None else None
        (memory_id,) = await insert(
            archive,
            caller.tenant,
            table,
            confidence=f"{confidence!r}::float8",
            decay_rate=f"{rate!r}::float8",
            last_confirmed_at=f"'{at.isoformat()}'" if at else "null",
            metadata="""'{"status": "fading"}'""" if faded else "'{}'",
        )
        planted.append((memory_id, rate, faded, effective_confidence(confidence, rate, at, now), at))
    await decay_sweep.sweep(memory, caller)
    for memory_id, rate, faded, left, at in planted:
        found = await lifecycle(archive, table, memory_id)
        if rate == 0:
            assert found == ("fading" if faded else "active"), "what does not decay is not touched"
        elif at is None or at > now or min(abs(left - FADING), abs(left - EXPIRED)) > 1e-3:
            assert found == expected_state(left), left
        else:
            # Too close to a threshold: the time until the sweep may decide.
            assert found in {expected_state(left - 1e-3), expected_state(left)}


async def test_a_tiny_decay_rate_breaks_no_search_and_no_sweep(memory, caller, archive, tools):
    """PostgreSQL raises an underflow error for a tiny number, and every search and sweep computes it."""
    fact = await tools.fact("blue")
    await archive.change("fact", fact, decay_rate="5e-324::float8")
    assert await tools.ids("memory_search", query="blue") == [fact]
    assert (await decay_sweep.sweep(memory, caller))["facts_seen"] == 1


@BOTH_TABLES
async def test_the_thresholds_are_the_configured_ones(memory, caller, archive, table):
    asked = with_confidence(memory, fading_below=0.75, expired_below=0.5)
    planted = {
        confidence: (await insert(archive, caller.tenant, table, confidence=f"{confidence!r}", decay_rate="1e-18"))[0]
        for confidence in (0.75, math.nextafter(0.75, 0), 0.5, math.nextafter(0.5, 0))
    }
    await decay_sweep.sweep(asked, caller)
    assert [await lifecycle(archive, table, each) for each in planted.values()] == [
        "active",
        "fading",
        "fading",
        "expired",
    ]
    kept = with_confidence(memory, expired_below=0.0)
    (unbelieved,) = await insert(archive, caller.tenant, table, confidence="0")
    await decay_sweep.sweep(kept, caller)
    assert await lifecycle(archive, table, unbelieved) == "fading", "0 keeps all"


LONG_AGO = {"last_confirmed_at": "now() - interval '20 years'"}
NOT_DECAYING = {
    "a permanent fact": ("facts", {"permanence": "'permanent'", "decay_rate": "0", **LONG_AGO}),
    "a permanent fact nobody believes": ("facts", {"decay_rate": "0", "confidence": "0.01"}),
    "a superseded fact": ("facts", {"validity": "'superseded'", **LONG_AGO}),
    "a retracted fact": ("facts", {"validity": "'retracted'", "last_confirmed_at": "null"}),
    "an expired fact": ("facts", {"validity": "'expired'", **LONG_AGO}),
    "a retracted fact that was fading": (
        "facts",
        {"validity": "'retracted'", "metadata": """'{"status": "fading"}'""", "confidence": "1"},
    ),
    "a permanent rule": ("rules", {"permanence": "'permanent'", "decay_rate": "0", **LONG_AGO}),
    "a warning": ("rules", {"maturity": "'anti_pattern'", "decay_rate": "0.1", **LONG_AGO}),
    "a forgotten rule": ("rules", {"metadata": """'{"forgotten": true}'""", **LONG_AGO}),
    "a forgotten rule that was fading": ("rules", {"metadata": """'{"forgotten": true, "status": "fading"}'"""}),
}


async def test_what_does_not_decay_or_is_gone_already_is_not_touched(memory, caller, archive):
    for table, columns in NOT_DECAYING.values():
        await insert(archive, caller.tenant, table, **columns)
    before = await archive.everything(caller.tenant)
    swept = await decay_sweep.sweep(memory, caller, capped=False)
    assert await archive.everything(caller.tenant) == before
    assert (swept["facts_seen"], swept["rules_seen"]) == (0, 0)


@BOTH_TABLES
async def test_what_was_never_confirmed_is_let_go_unless_it_is_permanent(memory, caller, archive, table):
    (never,) = await insert(archive, caller.tenant, table, last_confirmed_at="null")
    (permanent,) = await insert(archive, caller.tenant, table, last_confirmed_at="null", decay_rate="0")
    await decay_sweep.sweep(memory, caller)
    assert [await lifecycle(archive, table, each) for each in (never, permanent)] == ["expired", "active"]


@BOTH_TABLES
async def test_what_fades_recovers_and_each_transition_leaves_one_event(memory, caller, archive, table):
    """Scenario: Lifecycle transition event"""
    kind = table.removesuffix("s")
    (memory_id,) = await insert(archive, caller.tenant, table, confidence="0.5", metadata="""'{"mine": [1]}'""")
    days = {"fading": math.log(0.5 / 0.1) / 0.008, "recovered": 0, END_EVENT[table].split("_")[1]: 1000}
    seen = []
    for asked, after in days.items():
        await archive.change(kind, memory_id, last_confirmed_at=f"now() - interval '{after} days'")
        swept = [await decay_sweep.sweep(memory, caller) for _ in range(2)]
        assert [each[f"{table}_{asked}"] for each in swept] == [1, 0], "the second finds it done"
        seen.append(await lifecycle(archive, table, memory_id))
    assert seen == ["fading", "active", "expired"]
    row = await archive.row(kind, memory_id)
    assert json.loads(row["metadata"])["mine"] == [1], "what else is noted about it stays"
    assert "status" not in json.loads(row["metadata"])
    events = await archive.events(caller.tenant)
    assert [each["event_type"] for each in events] == [f"{kind}_{asked}" for asked in days]
    for event, left in zip(events, (0.1, 0.5, 0.5 * math.exp(-8)), strict=True):
        assert (event["entity_type"], event["entity_id"]) == (kind, memory_id)
        assert (event["actor"], event["request_id"]) == ("somebody", caller.request_id)
        payload = json.loads(event["payload"])
        assert payload.pop("confidence") == pytest.approx(left, abs=1e-4)
        assert payload == {"butler": memory.butler, "by": "decay"}


async def test_a_sweep_goes_through_any_number_of_memories_and_counts_them(memory, caller, archive):
    """Two and a half pages, each with memories in every state."""
    await insert_mixed(archive, caller.tenant, facts=2_500, rules=1_200)
    steps = []
    swept = await decay_sweep.sweep(
        memory, caller, capped=False, progress=lambda done, total: steps.append((done, total))
    )
    assert swept == {
        "dry_run": False,
        "tenants": 1,
        "facts_seen": 2_500,
        "facts_fading": 625,
        "facts_recovered": 625,
        "facts_expired": 625,
        "rules_seen": 1_200,
        "rules_fading": 300,
        "rules_recovered": 300,
        "rules_forgotten": 300,
        "rules_inverted": 0,
        "held_back": 0,
        "warnings": [],
    }
    assert await lifecycle_counts(archive, "facts", caller.tenant) == {"active": 1_250, "fading": 625, "expired": 625}
    assert await lifecycle_counts(archive, "rules", caller.tenant) == {"active": 600, "fading": 300, "expired": 300}
    assert await event_counts(archive, caller.tenant) == {
        "fact_fading": 625,
        "fact_recovered": 625,
        "fact_expired": 625,
        "rule_fading": 300,
        "rule_recovered": 300,
        "rule_forgotten": 300,
    }
    assert steps[-1] == (3_700, 3_700)
    assert steps == sorted(steps)
    assert len(steps) >= 5


async def test_the_progress_of_a_sweep_ends_at_its_total_whatever_does_not_decay(memory, caller, archive):
    await insert(archive, caller.tenant, "facts", 3, decay_rate="(array[0, 0.008, 0.1])[n]")
    steps = []
    await decay_sweep.sweep(memory, caller, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1][0] == steps[-1][1]


async def test_row_23_two_sweeps_at_once_make_one_event_a_transition(memory, caller, archive):
    await insert_mixed(archive, caller.tenant, facts=1_600, rules=1_600)
    both = await asyncio.gather(*(decay_sweep.sweep(memory, caller, capped=False) for _ in range(3)))
    for name in ("facts_fading", "facts_recovered", "facts_expired"):
        assert sum(each[name] for each in both) == 400
        assert sum(each[name.replace("facts", "rules").replace("expired", "forgotten")] for each in both) == 400
    assert await event_counts(archive, caller.tenant) == {
        "fact_fading": 400,
        "fact_recovered": 400,
        "fact_expired": 400,
        "rule_fading": 400,
        "rule_recovered": 400,
        "rule_forgotten": 400,
    }


CONCURRENT_CHANGES = [
    ("facts", "forget"),
    ("facts", "confirm"),
    ("facts", "supersede"),
    ("rules", "forget"),
    ("rules", "confirm"),
]
BEFORE = {"to fade": (0.1, "{}"), "to go": (0.01, "{}"), "to recover": (0.9, '{"status": "fading"}')}


def confirmed_at_for(confidence):
    """Return the time of the last confirmation that leaves this much of a confidence of 0.9."""
    return f"now() - interval '{math.log(0.9 / confidence) / 0.008} days'"


@pytest.mark.parametrize(("table", "how"), CONCURRENT_CHANGES)
@pytest.mark.parametrize("was", BEFORE)
async def test_what_somebody_changes_while_the_sweep_waits_for_it_is_judged_by_what_it_is_then(
    memory, caller, archive, table, how, was
):
    confidence, metadata = BEFORE[was]
    columns = {"confidence": "0.9", "metadata": f"'{metadata}'", "last_confirmed_at": confirmed_at_for(confidence)}
    (memory_id,) = await insert(archive, caller.tenant, table, **columns)
    kind = MemoryType(table.removesuffix("s"))
    async with memory.transaction(caller) as tx:
        await {
            "forget": lambda: memories.forget(tx, caller, kind, [UUID(memory_id)]),
            "confirm": lambda: memories.confirm(tx, caller, kind, UUID(memory_id)),
            "supersede": lambda: facts.supersede(tx, caller, UUID(memory_id)),
        }[how]()
        sweeping = asyncio.create_task(decay_sweep.sweep(memory, caller))
        await wait_for_lock_waits(archive, 1)
    swept = await sweeping
    expected = {"forget": "retracted", "confirm": "active", "supersede": "superseded"}[how]
    found = await lifecycle(archive, table, memory_id)
    assert found == ("expired" if (table, how) == ("rules", "forget") else expected)
    assert {swept[f"{table}_{name}"] for name in ("fading", "recovered", END_EVENT[table].split("_")[1])} == {0}
    assert await event_counts(archive, caller.tenant) == {}


async def succeeds(work):
    """Return whether a request succeeded; False when it came too late."""
    try:
        await work
    except Conflict:
        return False
    return True


@BOTH_TABLES
@pytest.mark.parametrize("confidence", [0.1, 0.01])
async def test_forgetting_at_the_moment_of_a_sweep_is_never_undone(memory, archive, table, confidence):
    kind = MemoryType(table.removesuffix("s"))
    for _ in range(15):
        caller = new_caller(memory)
        at = confirmed_at_for(confidence)
        ids = await insert(archive, caller.tenant, table, 8, confidence="0.9", last_confirmed_at=at)
        works = [management.forget(memory, caller, kind, UUID(each), REQUEST) for each in ids]
        done = await asyncio.gather(
            *map(succeeds, random.sample(works, len(works))),
            decay_sweep.sweep(memory, caller),
            return_exceptions=True,
        )
        assert not [each for each in done if isinstance(each, BaseException)]
        found = await lifecycle_counts(archive, table, caller.tenant)
        assert set(found) <= {"retracted", "expired"}, "none is left, and none came back"
        assert (await event_counts(archive, caller.tenant))[f"{kind}_forgotten"] >= sum(done[:-1])
        if table == "facts":
            assert found.get("retracted", 0) == sum(done[:-1])


@BOTH_TABLES
@pytest.mark.parametrize("confidence", [0.1, 0.01])
async def test_confirming_at_the_moment_of_a_sweep_leaves_nothing_fading(memory, archive, table, confidence):
    kind = MemoryType(table.removesuffix("s"))
    for _ in range(15):
        caller = new_caller(memory)
        at = confirmed_at_for(confidence)
        ids = await insert(archive, caller.tenant, table, 8, confidence="0.9", last_confirmed_at=at)
        works = [succeeds(feedback.confirm(memory, caller, kind, UUID(each), REQUEST)) for each in ids]
        swept, *done = await asyncio.gather(decay_sweep.sweep(memory, caller), *works)
        found = [await lifecycle(archive, table, each) for each in ids]
        assert found == ["active" if each else "expired" for each in done]
        assert found.count("expired") == swept["facts_expired"] + swept["rules_forgotten"]


async def test_a_row_that_somebody_holds_for_a_while_does_not_end_a_sweep(memory, butler, caller, archive):
    fact, _ = await insert(archive, caller.tenant, "facts", 2, confidence="0.1")
    async with connected(butler.location.admin_dsn) as another:
        async with another.transaction():
            await another.execute("select from facts where id = $1 for update", fact)
            sweeping = asyncio.create_task(decay_sweep.sweep(memory, caller))
            await asyncio.sleep(2.4)
            assert not sweeping.done()
        assert (await sweeping)["facts_fading"] == 2


@BOTH_TABLES
async def test_more_than_the_allowed_share_fades_and_expires_only_without_the_cap(
    memory, caller, archive, table, caplog
):
    left = "case when n <= 300 then 0.01 else 1 end"
    await insert(archive, caller.tenant, table, 1_200, confidence=left, decay_rate="1e-18")
    ended = END_EVENT[table].replace("_", "s_")
    first = await decay_sweep.sweep(memory, caller)
    assert (first[ended], first[f"{table}_fading"], first["held_back"]) == (120, 180, 180)
    assert await lifecycle_counts(archive, table, caller.tenant) == {"active": 900, "fading": 180, "expired": 120}
    (warning,) = first["warnings"]
    assert warning.startswith(f"180 memories of {caller.tenant} ")
    for part in ("10%", "they fade instead", "clock", "--no-cap"):
        assert part in warning
    assert [record.message for record in caplog.records] == [warning]
    rest = await decay_sweep.sweep(memory, caller, capped=False)
    assert (rest[ended], rest["held_back"], rest["warnings"]) == (180, 0, [])
    assert await lifecycle_counts(archive, table, caller.tenant) == {"active": 900, "expired": 300}
    assert (await event_counts(archive, caller.tenant))[END_EVENT[table]] == 300


@pytest.mark.parametrize(
    ("share", "live", "allowed"), [(0.0, 150, 100), (1.0, 150, 150), (0.5, 300, 150), (0.1, 90, 90)]
)
async def test_the_cap_is_the_configured_share_and_a_hundred_in_any_case(
    memory, caller, archive, share, live, allowed
):
    for table in ("facts", "rules"):
        await insert(archive, caller.tenant, table, live, confidence="0.01", decay_rate="1e-18")
    swept = await decay_sweep.sweep(with_confidence(memory, max_expired_share=share), caller)
    assert (swept["facts_expired"], swept["rules_forgotten"]) == (allowed, allowed), "each kind has its own"
    assert swept["held_back"] == 2 * (live - allowed)
    assert len(swept["warnings"]) == (allowed < live)


async def test_row_22_a_clock_that_jumps_a_year_ahead_empties_no_memory(memory, caller, archive, tools, caplog):
    await insert(archive, caller.tenant, "facts", 1_500, decay_rate="(array[0.01, 0.03, 0.1])[n % 3 + 1]")
    moved = "update facts set last_confirmed_at = last_confirmed_at {} interval '1 year' where tenant_id = $1"
    await archive.connection.execute(moved.format("-"), caller.tenant)
    swept = await decay_sweep.sweep(memory, caller)
    assert (swept["facts_expired"], swept["facts_fading"]) == (150, 1_350)
    assert "Check the clock of the database server." in swept["warnings"][0]
    assert caplog.records
    assert await lifecycle_counts(archive, "facts", caller.tenant) == {"fading": 1_350, "expired": 150}
    await archive.connection.execute(moved.format("+"), caller.tenant)
    assert (await decay_sweep.sweep(memory, caller))["facts_recovered"] == 1_350
    assert await lifecycle_counts(archive, "facts", caller.tenant) == {"active": 1_350, "expired": 150}
    (lost,) = await archive.rows(
        "select id::text from facts where tenant_id = $1 and validity = 'expired' limit 1", caller.tenant
    )
    assert (await tools("memory_restore", memory_type="fact", memory_id=lost["id"]))["restored"]


async def test_row_22_confirmations_from_the_future_change_nothing(memory, caller, archive):
    """The clock was a year ahead and has been corrected."""
    for table in ("facts", "rules"):
        ahead = "now() + interval '1 year'"
        await insert(
            archive, caller.tenant, table, 300, decay_rate="(array[0.008, 5])[n % 2 + 1]", last_confirmed_at=ahead
        )
    before = await archive.everything(caller.tenant)
    swept = await decay_sweep.sweep(memory, caller)
    assert (swept["facts_seen"], swept["rules_seen"], swept["warnings"]) == (300, 300, [])
    assert await archive.everything(caller.tenant) == before


COUNT_NAMES = [f"facts_{each}" for each in ("seen", "fading", "recovered", "expired")]
COUNT_NAMES += [f"rules_{each}" for each in ("seen", "fading", "recovered", "forgotten", "inverted")]


async def test_a_dry_run_counts_what_the_sweep_then_does_and_changes_nothing(memory, caller, archive):
    await insert_mixed(archive, caller.tenant, facts=400, rules=400)
    before = await archive.everything(caller.tenant)
    preview = await decay_sweep.preview(memory, caller)
    assert await archive.everything(caller.tenant) == before
    assert (preview["dry_run"], preview["warnings"]) == (True, [])
    swept = await decay_sweep.sweep(memory, caller, capped=False)
    assert [preview[name] for name in COUNT_NAMES] == [swept[name] for name in COUNT_NAMES]
    assert swept["facts_fading"] == 100


async def test_a_dry_run_counts_a_harmful_rule_that_faded_once(memory, caller, archive):
    """The sweep inverts it before it applies decay."""
    await insert(archive, caller.tenant, "rules", 2, confidence="0.01", metadata="""'{"needs_inversion": true}'""")
    preview, swept = await decay_sweep.preview(memory, caller), await decay_sweep.sweep(memory, caller)
    assert (swept["rules_inverted"], swept["rules_forgotten"]) == (2, 0)
    assert [preview[name] for name in COUNT_NAMES] == [swept[name] for name in COUNT_NAMES]


async def test_a_fading_memory_is_found_and_says_so_and_an_expired_one_is_not(memory, caller, archive, tools):
    texts = {"fading": "The bicycle is in the cellar", "expired": "The bicycle is in the garden"}
    known = {state: await tools.fact(text, "bicycle", state) for state, text in texts.items()}
    learned = {state: await tools.rule(f"Look first: {text}") for state, text in texts.items()}
    for kind, ids in (("fact", known), ("rule", learned)):
        for state, confidence in (("fading", "0.15"), ("expired", "0.04")):
            await archive.change(kind, ids[state], confidence=confidence)
    await decay_sweep.sweep(memory, caller)
    for mode in ("hybrid", "blended", "semantic", "keyword"):
        asked = {"query": "where is the bicycle", "mode": mode, "types": ["fact", "rule"]}
        found = await tools("memory_search", min_confidence=0, **asked)
        assert {(each["id"], each["lifecycle"]) for each in found} == {
            (known["fading"], "fading"),
            (learned["fading"], "fading"),
        }
        assert await tools("memory_search", min_confidence=0.2, **asked) == []
    got = [await tools("memory_get", type="fact", id=known[state]) for state in texts]
    assert [(each["lifecycle"], each["validity"]) for each in got] == [("fading", "active"), ("expired", "expired")]
    rule = await tools("memory_get", type="rule", id=learned["expired"])
    assert (rule["lifecycle"], rule["metadata"]["forgotten"]) == ("forgotten", True)
    assert (await tools("memory_stats"))["facts"]["fading"] == 1
    context = await tools("memory_context", trigger_prompt="bicycle in the garden", butler=memory.butler)
    assert "garden" not in str(context)


@pytest.mark.parametrize("kind", ["fact", "rule"])
async def test_an_expired_memory_can_be_restored_and_is_active_again(memory, caller, archive, tools, kind):
    text = "The spare key is under the third stone"
    memory_id = await (tools.fact(text) if kind == "fact" else tools.rule(text))
    await archive.age(kind, memory_id, 3000)
    await decay_sweep.sweep(memory, caller)
    assert await tools.ids("memory_search", query="spare key", min_confidence=0) == []
    assert (await tools.refusal("memory_confirm", type=kind, id=memory_id)).startswith("conflict: ")
    assert (await tools("memory_restore", memory_type=kind, memory_id=memory_id))["restored"] is True
    assert await tools.ids("memory_recall", topic="spare key") == [memory_id]
    record = await tools("memory_get", type=kind, id=memory_id)
    assert record["confidence"] == pytest.approx(1.0 if kind == "fact" else 0.5, abs=1e-4)
    assert record["lifecycle"] == "active"
    swept = await decay_sweep.sweep(memory, caller)
    assert (swept["facts_fading"], swept["facts_expired"], swept["rules_forgotten"]) == (0, 0, 0)
    happened = await tools("memory_history", memory_type=kind, memory_id=memory_id)
    last = END_EVENT[f"{kind}s"]
    assert [each["event_type"] for each in happened["events"]] == [f"{kind}_created", last, f"{kind}_restored"]


async def test_an_expired_fact_whose_key_is_taken_by_now_stays_where_it_is(memory, caller, archive, tools):
    old = await tools.fact("blue")
    await archive.age("fact", old, 3000)
    await decay_sweep.sweep(memory, caller)
    new = await tools.fact("green")
    assert (await tools.refusal("memory_restore", memory_type="fact", memory_id=old)).startswith("conflict: ")
    assert await tools.ids("memory_search", query="color", min_confidence=0) == [new]
    assert (await tools("memory_get", type="fact", id=old))["validity"] == "expired"


async def test_a_sweep_is_for_the_callers_tenant_or_for_all_and_nothing_crosses_over(tmp_path, environment, engine):
    async with separate_butler(tmp_path, environment, engine) as own:
        memory, archive = own.memory, own.archive
        ada, bob, eve = (own.new_caller() for _ in range(3))
        for number, who in enumerate((ada, bob, eve), start=1):
            await insert(archive, who.tenant, "facts", number, confidence="0.1")
            await insert(archive, who.tenant, "rules", number, confidence="0.01")
        before = [await archive.everything(who.tenant) for who in (bob, eve)]
        first = await decay_sweep.sweep(memory, ada)
        assert (first["tenants"], first["facts_fading"], first["rules_forgotten"]) == (1, 1, 1)
        assert [await archive.everything(who.tenant) for who in (bob, eve)] == before
        preview = await decay_sweep.preview(memory, ada, all_tenants=True)
        assert (preview["tenants"], preview["facts_fading"], preview["rules_forgotten"]) == (3, 5, 5)
        nobody = own.butler.caller("nobody", actor="the clock")
        everyone = await decay_sweep.sweep(memory, nobody, all_tenants=True)
        assert (everyone["tenants"], everyone["facts_fading"], everyone["rules_forgotten"]) == (3, 5, 5)
        for number, who in enumerate((ada, bob, eve), start=1):
            assert await event_counts(archive, who.tenant) == {"fact_fading": number, "rule_forgotten": number}
            actors = {event["actor"] for event in await archive.events(who.tenant)}
            assert actors == ({"somebody"} if who is ada else {"the clock"})
        assert await archive.count("memory_events", "nobody") == 0


async def test_the_cap_of_one_tenant_is_no_other_tenants(tmp_path, environment, engine):
    async with separate_butler(tmp_path, environment, engine) as own:
        ada, bob = own.new_caller(), own.new_caller()
        await insert(own.archive, ada.tenant, "facts", 130, confidence="0.01")
        await insert(own.archive, bob.tenant, "facts", 90, confidence="0.01")
        swept = await decay_sweep.sweep(own.memory, ada, all_tenants=True)
        assert await lifecycle_counts(own.archive, "facts", ada.tenant) == {"expired": 100, "fading": 30}
        assert await lifecycle_counts(own.archive, "facts", bob.tenant) == {"expired": 90}
        assert [ada.tenant in warning for warning in swept["warnings"]] == [True]
