"""Erasure: no table keeps a word or a vector of erased data, and an event records the erasure."""
# ruff: noqa: S608 — the tables are those the database names

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from butlers.errors import NotFound, SessionFailed
from butlers.host import job_runs, session_records
from butlers.host.runtimes.runtime import RuntimeResult
from butlers.modules.memory.domain.model import MemoryEdit, MemoryType, NewFact
from butlers.modules.memory.operations import consolidation, editing, erasure, writing
from memory.lying_session import start_session
from memory.memory_fixtures import REQUEST, Tools
from memory.scripted_model import ScriptedModel, with_model


@pytest.fixture
def word():
    """A unique word."""
    return f"marzipan{uuid4().hex[:10]}"


async def tables(archive) -> list[str]:
    rows = await archive.rows("select tablename from pg_tables where schemaname = 'public' order by 1")
    assert len(rows) > 10
    return [row["tablename"] for row in rows]


async def tables_with(archive, *texts: str) -> dict[str, int]:
    """Return the number of rows of each table with one of these texts in any column."""
    found = {}
    for table in await tables(archive):
        (row,) = await archive.rows(
            f"select count(*) as n from {table} t where lower(t::text) like any ($1::text[])",
            [f"%{text.lower()}%" for text in texts],
        )
        if row["n"]:
            found[table] = row["n"]
    return found


async def vectors(archive, tenant: str) -> list[str]:
    """Return every vector of a tenant, as text."""
    return [
        row["vector"]
        for table in ("facts", "rules", "episodes")
        for row in await archive.rows(f"select embedding::text as vector from {table} where tenant_id = $1", tenant)
    ]


async def store_word_everywhere(memory, caller, tools: Tools, word: str) -> None:
    """Store the word in every column of a tenant that can hold it."""
    liar = start_session(memory, caller)
    await liar.store_episode(f"They spoke of {word}")
    failing = SessionFailed(f"the program ended: {word}")
    for _ in range(memory.config.consolidation.max_attempts):
        await consolidation.consolidate(with_model(memory, ScriptedModel(failing), max_attempts=1), caller)
    entity = await tools.entity(f"Ada {word}", aliases=[f"The {word}"], metadata={"eats": word})
    await tools("entity_update", entity_id=entity, metadata={"cooks": word}, idempotency_key=f"key {entity}")
    for content in (f"likes {word}", f"hates {word}"):
        await tools.fact(content, subject=f"Ada {word}", predicate=f"about {word}", entity_id=entity, tags=[word])
    forgotten = await tools.fact(f"a secret of {word}", predicate="secret")
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    rule = await tools.rule(f"Offer {word}")
    await tools("memory_mark_harmful", rule_id=rule, reason=f"no more {word}")
    await tools("memory_retract_from", session_id=liar.id, dry_run=False, idempotency_key="back")
    await _store_in_records(memory, caller, word)


async def _store_in_records(memory, caller, word: str) -> None:
    """Store the word in the record of a session and of a job."""
    new = session_records.NewSession(uuid4(), "cli", f"buy {word}", "command", internal=False)
    await session_records.begin_session(memory.database, caller, new, uuid4(), waiting=False)
    answer = RuntimeResult(f"bought {word}")
    await session_records.finish_session(memory.database, caller, new, "succeeded", result=answer)
    run_id = await job_runs.claim_run(memory.database, caller, f"job {uuid4()}", None, datetime.now(UTC))
    await job_runs.finish_run(memory.database, caller, run_id, "failed", {"said": word}, f"no {word}")


async def test_of_an_erased_tenant_no_table_has_a_word_or_a_vector(memory, caller, tools, archive, word):
    await store_word_everywhere(memory, caller, tools, word)
    before, kept = await tables_with(archive, word), await vectors(archive, caller.tenant)
    assert set(before) == {
        "consolidation_runs",
        "edit_history",
        "entities",
        "episodes",
        "facts",
        "idempotency_keys",
        "job_runs",
        "rule_applications",
        "rules",
        "sessions",
    }
    assert len(await tables_with(archive, *kept)) == 3
    done = await erasure.erase_tenant(memory, caller)
    assert await tables_with(archive, word, *kept) == {}
    assert set(done["left"].values()) == {0}
    assert done["erased"]["facts"] == 3
    assert done["vacuumed"] is True


async def test_every_table_of_a_tenant_is_counted_and_emptied(memory, caller, tools, archive, word):
    """Only events and model names stay; they have no content. Leases and rates are of processes, not of memories."""
    await store_word_everywhere(memory, caller, tools, word)
    done = await erasure.erase_tenant(memory, caller)
    tenants = [
        table
        for table in await tables(archive)
        if table not in {"alembic_version", "api_keys", "leases", "rate_budgets"}
    ]
    left = {table for table in tenants if await archive.count(table, caller.tenant)}
    assert left == {"memory_events", "embedding_versions"}
    assert set(done["left"]) == set(tenants) - left


async def test_the_trail_of_an_erased_tenant_has_ids_and_says_when_and_by_whom(memory, caller, tools, archive, word):
    await store_word_everywhere(memory, caller, tools, word)
    ids = {each["entity_id"] for each in await archive.events(caller.tenant)}
    await erasure.erase_tenant(memory, caller)
    events = await archive.events(caller.tenant)
    assert {each["entity_id"] for each in events} > ids
    assert (events[-1]["event_type"], events[-1]["actor"]) == ("tenant_erased", "somebody")
    assert word not in str(events)


async def test_another_tenant_with_the_same_words_keeps_every_row(
    memory, caller, tools, stranger, butler, archive, word
):
    await store_word_everywhere(memory, caller, tools, word)
    await store_word_everywhere(memory, replace(caller, tenant=stranger.tenant), stranger, word)
    before = await archive.everything(stranger.tenant)
    await erasure.erase_tenant(memory, caller)
    assert await archive.everything(stranger.tenant) == before
    assert (await stranger("memory_search", query=word, types=["rule"]))[0]["content"] == f"Offer {word}"


async def test_an_erased_tenant_can_begin_anew_and_be_erased_again(memory, caller, tools, archive, word):
    await store_word_everywhere(memory, caller, tools, word)
    await erasure.erase_tenant(memory, caller)
    assert (await erasure.erase_tenant(memory, caller))["erased"] == {}
    fact = await tools.fact("blue")
    assert await tools.ids("memory_search", query="color") == [fact]
    assert await tools.fact("blue") == fact


async def test_erasing_a_tenant_twice_at_once_while_it_is_written_to_ends_well(memory, caller, tools, archive):
    for number in range(5):
        await tools.fact(f"old {number}", predicate=f"p{number}")
    await asyncio.gather(
        erasure.erase_tenant(memory, caller),
        erasure.erase_tenant(memory, caller),
        *(tools.fact(f"new {number}", predicate=f"p{number}") for number in range(5)),
    )
    await erasure.erase_tenant(memory, caller)
    assert await archive.count("facts", caller.tenant) == 0


@pytest.mark.parametrize("kind", ["fact", "rule", "episode"])
async def test_of_an_erased_memory_no_table_has_a_word_or_a_vector(memory, caller, tools, archive, word, kind):
    memory_id = await _store(memory, caller, tools, kind, f"a secret of {word}")
    (vector,) = await vectors(archive, caller.tenant)
    done = await erasure.erase_memory(memory, caller, MemoryType(kind), UUID(memory_id))
    assert await tables_with(archive, word, vector) == {}
    assert (done["erased"], done["mentions"]) == ({f"{kind}s": 1}, [])
    *_, last = await archive.events(caller.tenant)
    assert (last["event_type"], last["entity_id"], last["actor"]) == (f"{kind}_erased", memory_id, "somebody")
    gone = await tools.refusal("memory_get", memory_type=kind, memory_id=memory_id)
    assert gone.startswith("not_found: ")


async def _store(memory, caller, tools, kind: str, content: str) -> str:
    if kind == "episode":
        return await start_session(memory, caller).store_episode(content)
    return await (tools.fact if kind == "fact" else tools.rule)(content, idempotency_key="kept")


async def test_what_an_erased_rule_did_and_why_is_gone_too(memory, caller, tools, archive, word):
    rule = await tools.rule(f"Offer {word}")
    await tools("memory_mark_harmful", rule_id=rule, reason=f"no {word}", idempotency_key="harm")
    await erasure.erase_memory(memory, caller, MemoryType.RULE, UUID(rule))
    assert await tables_with(archive, word) == {}


async def test_the_others_of_a_chain_stay_when_one_is_erased(memory, caller, tools, archive, word):
    oldest, middle, newest = [await tools.fact(content) for content in ("blue", word, "green")]
    await erasure.erase_memory(memory, caller, MemoryType.FACT, UUID(middle))
    assert await tables_with(archive, word) == {}
    states = [(await archive.row("fact", each))["validity"] for each in (oldest, newest)]
    assert states == ["superseded", "active"]
    assert await archive.count("memory_links", caller.tenant) == 0


async def test_where_the_words_of_an_erased_memory_still_stand_is_said(memory, caller, tools, archive, word):
    text = f"She loves {word}"
    erased = await tools.fact(text)
    others = {
        "episode": await start_session(memory, caller).store_episode(f"{text.upper()}, she told me"),
        "rule": await tools.rule(f"Remember: {text}"),
        "fact": await tools.fact(f"{text} and tea", predicate="food"),
        "entity": await tools.entity("Ada", metadata={"known": text}),
    }
    new = session_records.NewSession(uuid4(), "cli", f"note that {text}", "command", internal=False)
    await session_records.begin_session(memory.database, caller, new, uuid4(), waiting=False)
    others["session"] = str(new.id)
    done = await erasure.erase_memory(memory, caller, MemoryType.FACT, UUID(erased))
    assert {each["kind"]: each["id"] for each in done["mentions"]} == others


async def test_what_consolidation_noted_of_an_erased_memory_is_said(memory, caller, archive, word):
    """A failing program may quote its prompt in the error."""
    first, second = [
        await start_session(memory, caller).store_episode(content) for content in (f"All about {word}", "Tea")
    ]
    failing = ScriptedModel(SessionFailed(f"the program ended: All about {word}"))
    await consolidation.consolidate(with_model(memory, failing), caller)
    done = await erasure.erase_memory(memory, caller, MemoryType.EPISODE, UUID(first))
    (run,) = await archive.rows("select id::text from consolidation_runs where tenant_id = $1", caller.tenant)
    assert {(each["kind"], each["id"]) for each in done["mentions"]} == {
        ("episode", second),
        ("consolidation_run", run["id"]),
    }


async def test_of_an_erased_person_no_table_has_a_word(memory, caller, tools, archive, word):
    """Includes facts in every state, merged entities and stored answers."""
    ada, twin = await tools.entity(f"Ada {word}"), await tools.entity(f"Adah {word}", aliases=[word])
    await tools("entity_update", entity_id=ada, metadata={"eats": word}, idempotency_key="update")
    for about, content in ((ada, "old"), (ada, "new"), (twin, "other")):
        await tools.fact(f"{content} {word}", subject=word, predicate="diet", entity_id=about)
    gone = await tools.fact(f"a secret {word}", predicate="secret", entity_id=ada)
    await tools("memory_forget", memory_type="fact", memory_id=gone)
    await tools("entity_merge", source_entity_id=twin, target_entity_id=ada)
    other = await tools.entity("Grace")
    kept = await tools.fact("tea", predicate="diet", entity_id=other)
    done = await erasure.erase_entity(memory, caller, UUID(ada))
    assert (done["erased"], done["mentions"]) == ({"facts": 4, "entities": 2}, [])
    assert await tables_with(archive, word) == {}
    assert await tools.ids("memory_search", query="diet") == [kept]
    event_types = [each["event_type"] for each in await archive.events(caller.tenant)]
    assert (event_types.count("fact_erased"), event_types.count("entity_erased")) == (4, 2)


async def test_a_person_who_was_merged_away_is_still_named_by_the_one_who_stands_for_them(memory, caller, tools):
    ada, twin = await tools.entity("Ada"), await tools.entity("Lovelace the Countess")
    await tools("entity_merge", source_entity_id=twin, target_entity_id=ada)
    done = await erasure.erase_entity(memory, caller, UUID(twin))
    assert done["erased"] == {"facts": 0, "entities": 1}
    assert done["mentions"] == [{"kind": "entity", "id": ada}]


async def test_a_person_who_is_being_written_about_is_erased_before_or_after(memory, caller, tools, archive):
    ada = await tools.entity("Ada")
    new = [NewFact(subject="Ada", predicate=f"p{n}", content="x", entity_id=UUID(ada)) for n in range(6)]
    outcomes = await asyncio.gather(
        erasure.erase_entity(memory, caller, UUID(ada)),
        *(writing.store_fact(memory, caller, each, REQUEST) for each in new),
        return_exceptions=True,
    )
    refused = [each for each in outcomes if isinstance(each, BaseException)]
    assert all(isinstance(each, NotFound) for each in refused), refused
    assert await archive.count("entities", caller.tenant) == 0
    assert await archive.count("facts", caller.tenant) == 0


@pytest.mark.parametrize("kind", ["fact", "rule", "episode", "entity"])
async def test_what_is_not_there_or_anothers_is_not_found(memory, caller, tools, stranger, archive, kind):
    theirs = {
        "fact": await stranger.fact(),
        "rule": await stranger.rule(),
        "episode": await start_session(memory, replace(caller, tenant=stranger.tenant)).store_episode(),
        "entity": await stranger.entity(),
    }[kind]
    before = await archive.everything(stranger.tenant)
    for wanted in (UUID(theirs), uuid4()):
        with pytest.raises(NotFound):
            await (
                erasure.erase_entity(memory, caller, wanted)
                if kind == "entity"
                else erasure.erase_memory(memory, caller, MemoryType(kind), wanted)
            )
    assert await archive.everything(stranger.tenant) == before
    assert await archive.events(caller.tenant) == []


async def test_the_words_that_edits_replaced_go_with_what_was_edited(memory, caller, tools, archive, word):
    fact, ada = await tools.fact(tags=[word]), await tools.entity(f"Ada {word}")
    await editing.edit(memory, caller, MemoryType.FACT, UUID(fact), MemoryEdit(tags=("other",)), REQUEST)
    await tools("entity_update", entity_id=ada, canonical_name="Ada")
    assert await tables_with(archive, word) == {"edit_history": 2}
    await erasure.erase_memory(memory, caller, MemoryType.FACT, UUID(fact))
    await erasure.erase_entity(memory, caller, UUID(ada))
    assert await tables_with(archive, word) == {}
