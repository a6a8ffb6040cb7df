"""The worked example of the consolidation page, run as it is written."""

import json
import re
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from butlers import app
from butlers.modules.memory.embedding import get_embedding_engine
from butlers.modules.memory.operations import consolidation
from butlers.modules.memory.tools import TOOLS
from database.butler_processes import connected
from memory.memory_fixtures import Archive, write_butler
from memory.scripted_model import ScriptedModel, episode_statuses, store_episodes, with_model

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "consolidation.md").read_text(encoding="utf-8")
CALLS = {tool.name: tool.function for tool in TOOLS}


def table(first: str) -> list[list[str]]:
    """The rows of the page's table with this first heading."""
    lines = PAGE.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |".replace("|  |", "| |")))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return rows


def answer(ids: dict[str, str]) -> str:
    """The answer of the page, with the real ids in place of the short ones."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    return re.sub(r'"([ef]\d)"', lambda short: json.dumps(ids[short[1]]), example)


@pytest.fixture
async def day(tmp_path, home, environment):
    """The butler of the page, with its pending episodes and known facts."""
    async with app.open_butler(app.load_configuration(write_butler(tmp_path, "general")), environment) as butler:
        memory = replace(butler.modules[0].state, embedder=get_embedding_engine(home))
        caller = butler.caller(f"t-{uuid4().hex}")
        ids = {}
        for short, subject, predicate, content in table("known fact"):
            stored = await CALLS["memory_store_fact"](memory, caller, subject, predicate, content)
            ids[short] = stored["id"]
        for short, _, content in table("episode"):
            (ids[short],) = await store_episodes(memory, caller, content)
        async with connected(butler.location.admin_dsn) as connection:
            yield memory, caller, ids, Archive(connection)


async def test_the_day_of_the_page_ends_as_the_page_says(day):
    memory, caller, ids, archive = day
    model = ScriptedModel(answer(ids))
    done = await consolidation.consolidate(with_model(memory, model), caller)
    assert (done["errors"], done["episodes"]) == ([], 5)
    assert [asked.episodes for asked in model.requests] == [[ids[f"e{number}"] for number in range(1, 6)]]
    assert all(ids[known] in model.requests[0].prompt for known in ("f1", "f2"))
    assert await known_now(archive, caller.tenant, ids) == {tuple(row) for row in table("")}
    assert await episode_statuses(archive, caller.tenant) == ["consolidated"] * 5


async def known_now(archive: Archive, tenant: str, ids: dict[str, str]) -> set[tuple[str, ...]]:
    """The facts and rules of the tenant, as rows of the page's table."""
    short = {real: name for name, real in ids.items()}
    links = await archive.rows(
        "select source_id::text, target_id::text, relation from memory_links where tenant_id = $1", tenant
    )
    found = await archive.rows(
        "select id::text, 'fact' as kind, concat_ws(', ', subject, predicate) as key, content, scope from facts"
        " where tenant_id = $1 and validity = 'active'"
        " union all select id::text, 'rule', '', content, scope from rules where tenant_id = $1",
        tenant,
    )
    confirmed = {
        row["id"]
        for row in await archive.rows(
            "select entity_id::text as id from memory_events where tenant_id = $1 and event_type = 'fact_confirmed'",
            tenant,
        )
    }

    def table_row(row):
        targets = {
            link["relation"]: f"`{short[link['target_id']]}`" for link in links if link["source_id"] == row["id"]
        }
        change = "confirmed" if row["id"] in confirmed else "new"
        change += f", in place of {targets['supersedes']}" if "supersedes" in targets else ""
        source = targets.get("derived_from", "as before").strip("`")
        # table() strips backticks only at the ends of a cell.
        return (change.strip("`"), row["kind"], row["key"], row["content"], row["scope"], source)

    return {table_row(row) for row in found}


async def test_each_memory_of_the_page_says_where_it_came_from(day):
    memory, caller, ids, archive = day
    done = await consolidation.consolidate(with_model(memory, ScriptedModel(answer(ids))), caller)
    by_predicate = {each.get("predicate"): each["id"] for each in done["learned"]}
    edges = {}
    for predicate in ("allergic_to", "lives_in"):
        found = await CALLS["memory_links"](memory, caller, "fact", by_predicate[predicate], "outgoing")
        edges[predicate] = {(str(link["relation"]), str(link["target_id"])) for link in found}
    assert edges == {
        "allergic_to": {("derived_from", ids["e3"])},
        "lives_in": {("supersedes", ids["f1"]), ("derived_from", ids["e2"])},
    }
    history = await CALLS["memory_history"](memory, caller, "fact", by_predicate["allergic_to"])
    (run,) = await archive.rows("select id::text from consolidation_runs where tenant_id = $1", caller.tenant)
    assert [(event["actor"], event["request_id"]) for event in history["events"]] == [("local", run["id"])]
    await archive.rows("delete from episodes where id = $1 returning 1", ids["e3"])
    (link,) = await CALLS["memory_links"](memory, caller, "fact", by_predicate["allergic_to"], "outgoing")
    assert str(link["target_id"]) == ids["e3"], "the link stays when the episode is deleted"
