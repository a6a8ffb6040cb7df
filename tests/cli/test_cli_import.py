"""Imports from other memory systems, with the real program and in this process."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from butlers.errors import Conflict, NotFound
from butlers.memory_formats import Source, find_format
from butlers.modules.memory.operations import foreign_import, retraction
from butlers.modules.memory.operations.foreign_import import BrokenSource
from butlers.modules.memory.operations.foreign_records import ImportOptions
from butlers.modules.memory.operations.retraction import Origin
from formats.foreign_samples import SAMPLES

from .conftest import write_butler
from .sample_memory import open_memory


@pytest.fixture(scope="module")
async def here(tmp_path_factory, worker, environment):
    async with open_memory(tmp_path_factory.mktemp("here") / "b", f"foreign_{worker}", environment) as opened:
        yield opened


@pytest.fixture
def bring(here):
    """Import a file for a caller; return the report."""

    async def run(caller, path, name="auto", *, preview=False, partial=False, replaces=None, **options):
        with Source(path) as source:
            found = find_format(name, source)
            chosen = ImportOptions(
                **{"format": found.name, "file": source.name, "butler": here.memory.butler, "now": datetime.now(UTC)}
                | options
            )
            if preview:
                return await foreign_import.preview_import(
                    here.memory, caller, source, found, chosen, replaces=replaces
                )
            return await foreign_import.import_foreign(
                here.memory, caller, source, found, chosen, is_partial=partial, replaces=replaces
            )

    return run


async def rows(here, caller, kind):
    return [record for line in (await here.export(caller))[1:] if (record := json.loads(line))["kind"] == kind]


async def live(here, caller):
    return sorted(row["content"] for row in await rows(here, caller, "fact") if row["validity"] == "active")


def write_graph(path, *observations, name="Ann", **values):
    line = {"type": "entity", "name": name, "entityType": "person", "observations": list(observations)}
    path.write_text(json.dumps(line | values) + "\n")
    return path


@pytest.mark.parametrize("name", SAMPLES)
async def test_a_file_is_imported_and_the_same_file_again_changes_nothing(here, bring, tmp_path, name):
    caller, path = here.new_caller(), SAMPLES[name](tmp_path, 3)
    planned = await bring(caller, path, name, preview=True)
    assert len(await here.export(caller)) == 1
    done = await bring(caller, path, name)
    assert done.new == planned.new
    assert sum(done.new.values()) > 0
    before = await here.export(caller)
    again = await bring(caller, path, name)
    assert not any(again.new.values())
    assert sum(again.known.values()) == sum(done.new.values()) - done.new["link"]
    assert (await here.export(caller))[1:] == before[1:]


@pytest.mark.parametrize("name", SAMPLES)
async def test_origin_and_id_stay_in_the_metadata_and_nothing_expires_or_waits(here, bring, tmp_path, name):
    caller = here.new_caller()
    path = SAMPLES[name](tmp_path, 2)
    await bring(caller, path, name)
    for kind in ("episode", "fact", "rule"):
        for row in await rows(here, caller, kind):
            assert row["metadata"]["source"]["format"] == name
            assert row["metadata"]["source"]["file"] == path.name
            assert row["metadata"]["source"]["id"]
            assert row.get("permanence", "stable") == "stable"
            assert row.get("expires_at") is None
            assert row.get("consolidation_status", "consolidated") == "consolidated"


async def test_many_statements_about_one_thing_are_all_live_under_keys_of_their_own(here, bring, tmp_path):
    caller = here.new_caller()
    await bring(caller, write_graph(tmp_path / "m.jsonl", "tea", "milk", "Graz"))
    facts = await rows(here, caller, "fact")
    assert [row["predicate"].partition("#")[0] for row in facts] == ["note"] * 3
    assert len({row["predicate"] for row in facts}) == 3
    await bring(caller, write_graph(tmp_path / "m.jsonl", "new first", "tea", "milk", "Graz"))
    assert await live(here, caller) == ["Graz", "milk", "new first", "tea"]


async def test_an_import_never_takes_the_key_of_a_fact_that_is_there(here, bring, tmp_path):
    caller = here.new_caller()
    entity = (await here.call(caller, "entity_create", "ann", "person"))["id"]
    await here.call(caller, "memory_store_fact", "Ann", "note", "mine", entity_id=entity)
    report = await bring(caller, write_graph(tmp_path / "m.jsonl", "tea"))
    assert report.known["entity"] == 1
    assert await live(here, caller) == ["mine", "tea"]
    assert {row["entity_id"] for row in await rows(here, caller, "fact")} == {entity}


async def test_facts_of_an_entity_that_was_merged_go_to_its_successor(here, bring, tmp_path):
    caller = here.new_caller()
    await bring(caller, write_graph(tmp_path / "m.jsonl", "tea"))
    (entity,) = await rows(here, caller, "entity")
    target = (await here.call(caller, "entity_create", "Anna", "person"))["id"]
    await here.call(caller, "entity_merge", entity["id"], target)
    await bring(caller, write_graph(tmp_path / "m.jsonl", "tea", "milk"))
    assert {row["entity_id"] for row in await rows(here, caller, "fact")} == {target}


async def test_names_that_differ_in_case_are_one_entity(here, bring, tmp_path):
    caller = here.new_caller()
    lines = [
        write_graph(tmp_path / "m.jsonl", f"o{n}", name=name).read_text() for n, name in enumerate(("Ann", "ANN"))
    ]
    (tmp_path / "m.jsonl").write_text("".join(lines))
    report = await bring(caller, tmp_path / "m.jsonl")
    assert (report.new["entity"], report.new["fact"]) == (1, 2)


async def test_a_broken_part_imports_nothing_unless_the_rest_is_asked_for(here, bring, tmp_path):
    caller, path = here.new_caller(), write_graph(tmp_path / "m.jsonl", "tea")
    path.write_text(path.read_text() + '{"type": "entity", "name"\n{"type":"entity","name":"' + "x" * 600 + '"}\n')
    with pytest.raises(BrokenSource, match=r"line 2: it is not valid JSON.* and 1 more problem"):
        await bring(caller, path)
    assert await rows(here, caller, "fact") == []
    report = await bring(caller, path, partial=True)
    assert (report.new["fact"], report.problem_count) == (1, 2)


async def test_no_file_sets_metadata_that_has_a_meaning(here, bring, tmp_path):
    caller, path = here.new_caller(), SAMPLES["mem0"](tmp_path)
    page = json.loads(path.read_text())
    page["results"][0]["metadata"] |= {"status": "fading", "merged_into": "x", "forgotten": True, "source": "y"}
    path.write_text(json.dumps(page))
    await bring(caller, path)
    for kind in ("fact", "entity"):
        for row in await rows(here, caller, kind):
            assert set(row["metadata"]) <= {"source", "type"}


async def test_an_old_memory_arrives_with_half_of_its_confidence_at_least(here, bring, tmp_path):
    caller, path = here.new_caller(), SAMPLES["mem0"](tmp_path)
    path.write_text(path.read_text().replace("2026-03-02", "2001-03-02"))
    await bring(caller, path)
    found = await here.call(caller, "memory_search", "tea", types=["fact"])
    assert found[0]["confidence"] == pytest.approx(0.5, abs=0.001)
    assert (await rows(here, caller, "fact"))[0]["created_at"].startswith("2001")
    fresh = here.new_caller()
    await bring(fresh, path, is_fresh=True)
    assert (await here.call(fresh, "memory_search", "tea", types=["fact"]))[0]["confidence"] == pytest.approx(
        1, abs=0.001
    )


async def test_times_in_the_future_become_now(here, bring, tmp_path):
    caller, path = here.new_caller(), SAMPLES["mem0"](tmp_path)
    path.write_text(path.read_text().replace("2026-03-02", "9998-03-02"))
    await bring(caller, path)
    for row in await rows(here, caller, "fact"):
        assert datetime.fromisoformat(row["last_confirmed_at"]) < datetime.now(UTC) + timedelta(minutes=1)


async def test_all_of_an_import_is_retracted_together_and_brought_back(here, bring, tmp_path):
    caller = here.new_caller()
    mine = (await here.call(caller, "memory_store_fact", "Ann", "note", "mine"))["id"]
    report = await bring(caller, SAMPLES["claude"](tmp_path, 40))
    origin = Origin(import_id=report.import_id)
    preview = await retraction.preview(here.memory, caller, origin)
    brought = sum(report.new[kind] for kind in ("episode", "fact", "rule"))
    assert (preview["total"], len(preview["found"])) == (brought, 30 + 3 + 1)
    done = await retraction.retract(here.memory, caller, origin)
    assert sum(done["retracted"].values()) == brought
    assert await live(here, caller) == ["mine"]
    assert (await here.call(caller, "memory_get", "fact", mine))["validity"] == "active"
    back = await retraction.undo_retraction(here.memory, caller, done["retraction_id"])
    assert back == {"restored": brought, "left_alone": []}
    assert len(await live(here, caller)) == 4
    with pytest.raises(NotFound):
        await retraction.preview(here.memory, caller, Origin(import_id=uuid4()))
    with pytest.raises(NotFound):
        await retraction.preview(here.memory, here.new_caller(), origin)


async def test_a_retracted_import_stays_retracted_when_the_file_comes_again(here, bring, tmp_path):
    caller, path = here.new_caller(), write_graph(tmp_path / "m.jsonl", "tea")
    report = await bring(caller, path)
    await retraction.retract(here.memory, caller, Origin(import_id=report.import_id))
    assert (await bring(caller, path)).new["fact"] == 0
    assert await live(here, caller) == []


async def test_replacing_retracts_what_is_gone_and_what_has_other_words(here, bring, tmp_path):
    caller = here.new_caller()
    path = SAMPLES["mem0"](tmp_path, 3)
    first = await bring(caller, path)
    page = json.loads(path.read_text())
    page["results"][0]["memory"] = "Ann prefers coffee"
    del page["results"][1]
    path.write_text(json.dumps(page))
    unchanged = await bring(caller, path)
    assert (unchanged.changed, unchanged.new["fact"]) == (1, 0)
    second = await bring(caller, path, replaces=first.import_id)
    assert (second.retracted, second.new["fact"]) == (2, 1)
    assert await live(here, caller) == ["Ann prefers coffee", "Ann prefers tea of kind 2", "Graz"]
    third = await bring(caller, path, replaces=second.import_id)
    assert third.new["fact"] == 0
    assert await live(here, caller) == ["Ann prefers coffee", "Ann prefers tea of kind 2", "Graz"]


async def test_a_session_that_a_hook_has_stored_is_not_imported_again(here, bring, tmp_path):
    caller, path = here.new_caller(), SAMPLES["claude-code-sessions"](tmp_path, 2)
    stored = "0f0e0d0c-0b0a-4908-8706-000000000001"
    await here.call(caller, "memory_store_episode", "By the hook", here.memory.butler, session_id=stored)
    report = await bring(caller, path, "claude-code-sessions")
    assert (report.new["episode"], report.known["episode"]) == (1, 1)


async def test_episodes_wait_for_consolidation_only_if_asked_for(here, bring, tmp_path):
    caller = here.new_caller()
    await bring(caller, SAMPLES["chatgpt"](tmp_path, 2), consolidates=True)
    assert {row["consolidation_status"] for row in await rows(here, caller, "episode")} == {"pending"}


async def test_secrets_are_taken_out_of_every_part_or_refused(here, bring, tmp_path):
    caller = here.new_caller()
    path = write_graph(tmp_path / "m.jsonl", "The password is hunter2!x", "Drinks tea")
    report = await bring(caller, path)
    assert dict(report.redacted) == {"password": 1}
    assert "hunter2" not in "".join(await here.export(caller))
    with pytest.raises(BrokenSource, match="it contains a secret: password"):
        await bring(here.new_caller(), path, secrets="refuse")
    other = here.new_caller()
    await bring(other, path, secrets="keep")
    assert "The password is hunter2!x" in await live(here, other)


async def test_links_join_memories_of_the_file(here, bring, tmp_path):
    caller = here.new_caller()
    report = await bring(caller, SAMPLES["graphiti"](tmp_path, 2))
    assert report.new["link"] == 2
    fact = next(row for row in await rows(here, caller, "fact") if row["predicate"].startswith("lives_in"))
    (link,) = await here.call(caller, "memory_links", "fact", fact["id"])
    assert (link["relation"], link["target_type"]) == ("derived_from", "episode")


async def test_only_one_of_two_imports_at_once_writes(here, bring, tmp_path):
    caller, path = here.new_caller(), SAMPLES["mcp-memory"](tmp_path, 20)
    done = await asyncio.gather(*(bring(caller, path) for _ in range(5)), return_exceptions=True)
    assert all(not isinstance(each, Exception) or isinstance(each, Conflict) for each in done)
    reports = [each for each in done if not isinstance(each, Exception)]
    assert [each.new["fact"] for each in reports if each.new["fact"]] == [43]
    assert len(await rows(here, caller, "fact")) == 43


async def test_another_tenant_imports_the_same_file_for_itself(here, bring, tmp_path):
    path = SAMPLES["mcp-memory"](tmp_path)
    one, two = here.new_caller(), here.new_caller()
    assert (await bring(one, path)).new == (await bring(two, path)).new


async def test_the_program_shows_previews_imports_and_takes_back(shell, tmp_path, worker, tenant):
    folder = write_butler(tmp_path, f"cli_{worker}")
    path = SAMPLES["mem0"](tmp_path, 3)
    words = ("--tenant", tenant)
    preview = shell("import", folder, path, "--dry-run", *words, columns=80)
    assert preview.returncode == 0, preview.stderr
    assert "Nothing was changed." in preview.stdout
    assert "a memory that has expired" in preview.stdout
    assert max(map(len, preview.stdout.splitlines())) <= 80
    done = json.loads(shell("import", folder, path, "--from", "mem0", "--json", *words).stdout)
    assert (done["new"]["fact"], done["left_out"]["a memory without a text"]) == (4, 1)
    (listed,) = json.loads(shell("memory", "imports", folder, "--json", *words).stdout)
    assert (listed["id"], listed["origin"]["format"], listed["origin"]["file"]) == (
        done["import_id"],
        "mem0",
        "mem0.json",
    )
    assert "mem0.json" in shell("memory", "imports", folder, *words, columns=80).stdout
    found = json.loads(shell("memory", "search", folder, "tea", "--types", "fact", "--json", *words).stdout)
    assert len(found) == 4
    taken = shell("memory", "retract-from", folder, "--import", done["import_id"], "--yes", "--json", *words)
    assert json.loads(taken.stdout)["retracted"]["facts"] == 4
    assert json.loads(shell("memory", "search", folder, "tea", "--types", "fact", "--json", *words).stdout) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.json"], "can't be read"),
        (["mem0.json", "--from", "zep"], "there is no format zep"),
        (["mem0.json", "--replace", "x"], "--replace"),
        (["mem0.json", "--replace", str(uuid4())], "there is no import"),
        (["mem0.json", "--scope", "*"], "can't be a scope"),
        (["broken.json", "--from", "mem0"], "Pass --partial"),
    ],
)
async def test_a_refusal_is_one_line_that_says_what_to_do(shell, tmp_path, worker, tenant, words, message):
    folder = write_butler(tmp_path, f"cli_{worker}")
    SAMPLES["mem0"](tmp_path)
    (tmp_path / "broken.json").write_text('{"results": [{"memory"')
    refused = shell("import", folder, tmp_path / words[0], *words[1:], "--tenant", tenant)
    assert refused.returncode == 1
    assert message in refused.stderr
    assert refused.stderr.count("\n") == 1
