"""Consolidation runs as diffs, and taking back one item or the whole run."""
# ruff: noqa: S608 — the tables are constants of the tests

import asyncio
from uuid import UUID, uuid4

import pytest

from butlers.errors import Conflict, NotFound
from butlers.modules.memory.operations import consolidation_runs, looking
from butlers.modules.memory.operations.paging import Start
from memory.acts import FACT, RULE, Actor
from memory.lying_session import learn, start_session
from memory.memory_fixtures import REQUEST, new_caller
from memory.scripted_model import fact_update, new_fact

ROWS = ("facts", "rules", "episodes", "entities", "memory_links", "rule_applications", "consolidation_runs")


@pytest.fixture
def actor(memory, caller):
    """The caller, with a new request for each act."""
    return Actor(memory, caller)


@pytest.fixture
def last_run(memory, caller):
    """Return the id of the latest run."""

    async def find() -> UUID:
        return (await consolidation_runs.list_runs(memory, caller, Start())).rows[0]["id"]

    return find


@pytest.fixture
async def learned(memory, caller, tools, last_run):
    """A run that made one of each: a new fact and rule, a replaced fact, a confirmed fact and rule."""
    blue, tea = await tools.fact("blue", predicate="color"), await tools.fact("tea", predicate="drink")
    rule = await tools.rule("Ask before you book")
    episode = await start_session(memory, caller).store_episode("She likes red now, and tea as before")
    made = await learn(
        memory, caller,
        new_facts=[new_fact("by the window", "seat", scope="global")],
        updated_facts=[fact_update(blue, "red")],
        new_rules=["Offer a window seat"],
        confirmations=[{"target_id": each, "evidence": [episode]} for each in (tea, rule)],
    )  # fmt: skip
    ids = {each["content"]: each["id"] for each in made}
    return {"run": await last_run(), "blue": blue, "tea": tea, "rule": rule, "red": ids["red"],
            "seat": ids["by the window"], "offer": ids["Offer a window seat"]}  # fmt: skip


async def all_rows(archive, tenant):
    """Return every column of every row of a tenant, vectors included, without the trail."""
    return {
        table: await archive.rows(f"select t::text as row from {table} t where tenant_id = $1 order by 1", tenant)
        for table in ROWS
    }


async def take_back(actor, run, **options):
    """Take back a run as a new request; return its id and answer."""
    return await actor.answer(lambda m, c, _: consolidation_runs.take_back(m, c, run, REQUEST, **options))


async def test_a_run_is_shown_as_what_it_read_and_what_it_made(memory, caller, learned):
    diff = await consolidation_runs.show_run(memory, caller, learned["run"])
    assert [each["content"] for each in diff.episodes] == ["She likes red now, and tea as before"]
    made = {str(each.id): each for each in diff.items}
    assert {learned[name]: made[learned[name]].change for name in ("seat", "red", "offer", "tea", "rule")} == {
        learned["seat"]: "new", learned["red"]: "replaced", learned["offer"]: "new",
        learned["tea"]: "confirmed", learned["rule"]: "confirmed",
    }  # fmt: skip
    replaced = made[learned["red"]].replaced
    assert replaced is not None
    assert replaced["content"] == "blue"
    assert all(made[learned[name]].evidence == [diff.episodes[0]["id"]] for name in ("seat", "red", "offer"))
    assert diff.dropped == []


async def test_taking_a_run_back_and_undoing_it_restores_every_row(memory, caller, archive, actor, learned):
    assert await archive.count("memory_links", caller.tenant, "relation = 'supports'") == 2
    before = await all_rows(archive, caller.tenant)
    preview = await consolidation_runs.preview_take_back(memory, caller, learned["run"])
    assert await all_rows(archive, caller.tenant) == before
    request, answer = await take_back(actor, learned["run"])
    assert (answer["taken_back"], answer["brought_back"]) == (preview["taken_back"], preview["brought_back"])
    assert (answer["taken_back"], answer["brought_back"]) == (5, [learned["blue"]])
    validity = {name: (await archive.row("fact", learned[name]))["validity"] for name in ("seat", "red", "blue")}
    assert validity == {"seat": "retracted", "red": "retracted", "blue": "active"}
    assert await archive.count("memory_links", caller.tenant, "relation = 'supports'") == 0
    assert (await actor.undo(request))["number"] == 6
    assert await all_rows(archive, caller.tenant) == before
    assert (await take_back(actor, learned["run"]))[1]["taken_back"] == 5


async def test_one_item_is_taken_back_and_the_others_stay(caller, archive, actor, learned, memory):
    _, answer = await take_back(actor, learned["run"], ids=[UUID(learned["red"])])
    assert (answer["taken_back"], answer["brought_back"]) == (1, [learned["blue"]])
    assert (await archive.row("fact", learned["seat"]))["validity"] == "active"
    effects = {each["id"]: each["effect"] for each in
               (await consolidation_runs.preview_take_back(memory, caller, learned["run"]))["items"]}  # fmt: skip
    assert effects == {learned["red"]: "gone", **{learned[n]: "goes" for n in ("seat", "offer", "tea", "rule")}}


async def test_a_confirmation_taken_back_no_longer_counts(archive, actor, tools, memory, caller, last_run):
    fact = await tools.fact("tea", predicate="drink")
    await archive.age("fact", fact, 100)
    before = await archive.row("fact", fact)
    await start_session(memory, caller).store_episode("Tea again")
    await learn(memory, caller, confirmations=[{"target_id": fact}])
    assert (await archive.row("fact", fact))["last_confirmed_at"] > before["last_confirmed_at"]
    await take_back(actor, await last_run())
    assert await archive.row("fact", fact) == before


async def test_what_others_say_stays_unless_asked_for(memory, caller, archive, actor, learned):
    episode = await start_session(memory, caller).store_episode("The window seat again")
    await learn(memory, caller, confirmations=[{"target_id": learned["seat"], "evidence": [episode]}])
    await actor.confirm(RULE, learned["offer"])
    preview = await consolidation_runs.preview_take_back(memory, caller, learned["run"])
    reasons = {each["id"]: each.get("reason") for each in preview["items"]}
    assert reasons[learned["seat"]] == "1 other episode says it"
    assert reasons[learned["offer"]] == "somebody confirmed it since"
    assert reasons[learned["red"]] is None
    _, answer = await take_back(actor, learned["run"])
    assert answer["taken_back"] == 3
    assert (await archive.row("fact", learned["seat"]))["validity"] == "active"
    _, answer = await take_back(actor, learned["run"], include_corroborated=True)
    assert answer["taken_back"] == 2
    assert (await archive.row("fact", learned["seat"]))["validity"] == "retracted"


async def test_a_memory_confirmed_since_keeps_its_confirmation(memory, caller, archive, actor, learned):
    await actor.confirm(FACT, learned["tea"])
    confirmed_at = (await archive.row("fact", learned["tea"]))["last_confirmed_at"]
    preview = await consolidation_runs.preview_take_back(memory, caller, learned["run"])
    assert {each["id"]: each.get("reason") for each in preview["items"]}[learned["tea"]] == "it has changed since"
    await take_back(actor, learned["run"])
    assert (await archive.row("fact", learned["tea"]))["last_confirmed_at"] == confirmed_at


async def test_a_key_that_was_taken_since_stays_with_its_fact(archive, actor, tools, learned):
    newer = await tools.fact("green", predicate="color")
    _, answer = await take_back(actor, learned["run"])
    assert answer["brought_back"] == []
    states = {name: (await archive.row("fact", learned[name]))["validity"] for name in ("blue", "red")}
    assert states == {"blue": "superseded", "red": "superseded"}
    assert (await archive.row("fact", newer))["validity"] == "active"


async def test_fifty_people_take_a_run_back_once(archive, caller, actor, learned):
    async def attempt():
        try:
            return (await take_back(actor, learned["run"]))[1]["taken_back"]
        except (NotFound, Conflict):
            return 0

    results = [each for _ in range(5) for each in await asyncio.gather(*(attempt() for _ in range(10)))]
    assert sorted(results, reverse=True)[:2] == [5, 0]
    assert await archive.count("memory_events", caller.tenant, "event_type like '%_confirmation_withdrawn'") == 2


async def test_accepting_a_run_takes_its_memories_from_the_pile_and_names_who_looked(memory, caller, actor, learned):
    async with memory.transaction(caller) as tx:
        assert len(await looking.list_unlooked(tx, caller, limit=10)) == 3
    await actor(lambda m, c, _: consolidation_runs.accept(m, c, learned["run"], REQUEST))
    async with memory.transaction(caller) as tx:
        assert await looking.list_unlooked(tx, caller, limit=10) == []
    (run,) = (await consolidation_runs.list_runs(memory, caller, Start())).rows
    assert run["looked_at_by"] == ["somebody"]


async def test_other_tenants_and_unknown_items_are_not_found(memory, caller, actor, learned):
    other = new_caller(memory)
    assert (await consolidation_runs.list_runs(memory, other, Start())).rows == []
    with pytest.raises(NotFound):
        await consolidation_runs.show_run(memory, other, learned["run"])
    with pytest.raises(NotFound, match="the run did not make"):
        await take_back(actor, learned["run"], ids=[uuid4()])


async def test_an_agent_lists_a_run_and_takes_it_back(tools, learned):
    (run,) = (await tools("memory_consolidation_runs"))["runs"]
    assert (run["id"], run["facts_created"], run["facts_updated"], run["confirmed"]) == (str(learned["run"]), 1, 1, 2)
    shown = await tools("memory_consolidation_runs", run_id=run["id"])
    assert {each["change"] for each in shown["items"]} == {"new", "replaced", "confirmed"}
    assert (await tools("memory_consolidation_runs", run_id=run["id"], take_back=True, dry_run=True))[
        "dry_run"
    ] is True
    take_back = {"run_id": run["id"], "take_back": True, "idempotency_key": "k-1"}
    done = await tools("memory_consolidation_runs", **take_back)
    assert await tools("memory_consolidation_runs", **take_back) == done
    assert (await tools("memory_undo", request_id=done["request_id"]))["number"] == 6
    assert "not_found" in await tools.refusal("memory_consolidation_runs", run_id=str(uuid4()))
    assert "Send its run_id" in await tools.refusal("memory_consolidation_runs", take_back=True)


async def test_no_search_finds_what_was_taken_back(tools, learned):
    await tools("memory_consolidation_runs", run_id=str(learned["run"]), take_back=True)
    found = await tools.ids("memory_search", query="where does she sit, by the window?", scope="*")
    assert learned["seat"] not in found
    assert learned["offer"] not in found
