"""Every table at 80 columns and in a pipe: no value is broken, no line is too long."""

import json
import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from rich.cells import cell_len

from butlers.cli import entity_views, jobs, keys, memory_views, tables

from .conftest import write_butler
from .shell import MemoryShell
from .test_cli_consolidation import FAILING

TEXT = "Ada prefers a table by the window, and asks for the menu of the day before she orders anything else. " * 3
NOW = datetime(2026, 11, 18, 3, 0, tzinfo=UTC).astimezone()
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def assert_fits(text, *values):
    """Assert that the text fits in 80 columns and has every value in one line."""
    lines = text.splitlines()
    assert [line for line in lines if cell_len(line) > 80] == []
    assert [value for value in values if not any(value in line for line in lines)] == []
    assert len(re.findall(r"\d{4}-\d\d-\d\d", text)) == len(re.findall(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", text))


def assert_piped(text, *rows):
    """Assert that the values of every row are in one line, without frames and escape sequences."""
    lines = text.splitlines()
    assert not set(text) & set("│┃─━\x1b…")
    assert [row for row in rows if not any(all(value in line for value in row) for line in lines)] == []


@pytest.fixture
def render(monkeypatch, capsys):
    """Return a function that prints to 80 columns and to a pipe, and returns both texts."""

    def both(shown):
        texts = []
        for columns in ("80", ""):
            monkeypatch.setenv("COLUMNS", columns)
            tables.render(shown, to_stderr=False)
            texts.append(capsys.readouterr().out)
        return texts

    return both


def test_the_layout_of_keys(render):
    key = {"id": str(uuid4()), "tenant": "t" * 40, "actor": TEXT.strip(), "roles": ["admin"], "elevated": True}
    folded, piped = render(tables.TextTable(keys._LAYOUT, [{**key, "state": "revoked", "expires_at": NOW}]))
    moment = f"{NOW:%Y-%m-%d %H:%M}"
    assert_fits(folded, key["id"], "t" * 40, "revoked", moment, "roles: admin", "elevated: True")
    assert_piped(piped, ("revoked", moment, key["id"], "t" * 40, TEXT.strip(), "admin", "True"))


@pytest.mark.parametrize("cron", ["0 3 * * *", "0,5,10,15,20,25,30,35,40,45,50,55 * * * *"])
def test_the_layout_of_jobs(render, cron):
    job = {"job": "consolidation_retry_of_the_week", "cron": cron, "next_run": NOW, "started_at": NOW}
    rows = [{**job, "status": "succeeded", "error": TEXT.strip()}, {**job, "status": None, "started_at": None}]
    folded, piped = render(tables.TextTable(jobs._LAYOUT, rows))
    moment = f"{NOW:%Y-%m-%d %H:%M}"
    assert_fits(folded, job["job"], cron, f"next run: {moment}", f"started at: {moment}", "succeeded")
    assert_piped(piped, (job["job"], cron, moment, "succeeded", TEXT.strip()), (job["job"], cron, moment))


def test_doctor_and_migrate_and_jobs_run(shell, new):
    migrated = shell("migrate", new, columns=80)
    assert_fits(migrated.stdout, "nothing")
    heads = json.loads(shell("migrate", new, "--json").stdout)
    assert_piped(shell("migrate", new, columns=None).stdout, *(tuple(row.values()) for row in heads))
    checks = json.loads(shell("doctor", new, "--json").stdout)
    assert_fits(shell("doctor", new, columns=80).stdout, *(f"│ {check['name']} " for check in checks))
    piped = shell("doctor", new, columns=None).stdout
    assert re.split(" {2,}", piped.splitlines()[0]) == ["state", "name", "found", "fix"]
    assert_piped(piped, *((check["state"], check["name"]) for check in checks))
    assert_fits(shell("jobs", "run", new, "decay_sweep", columns=80).stdout, "facts_expired")
    assert_piped(shell("jobs", "run", new, "decay_sweep", columns=None).stdout, ("facts_expired", "0"))
    assert_fits(shell("jobs", "list", new, columns=80).stdout, "consolidation_retry")


def test_key_list_and_revoke(shell, new):
    made = shell("key", "create", new, "--tenant", "acme", "--actor", "support bot", "--expires", "30d", "--json")
    (key,) = json.loads(made.stdout)
    assert_fits(shell("key", "list", new, columns=80).stdout, key["id"], "active", "actor: support bot")
    assert_piped(shell("key", "list", new, columns=None).stdout, ("active", key["id"], "acme", "support bot"))


@pytest.fixture
def facts(thinking):
    """Return a memory shell whose tenant has a superseded fact, and the ids of both facts."""
    memory, _ = thinking
    return memory, [memory("store-fact", "Ada", "table", f"{TEXT}{n}")["id"] for n in range(2)]


def test_search_and_recall(facts):
    memory, (_, fact) = facts
    for words in (("search", "window"), ("recall", "window")):
        assert_fits(memory.text(*words, columns=80), fact, "fact · Ada · table")
        assert_piped(
            memory.text(*words, columns=None), (fact, "fact · Ada · table", TEXT.strip(), "confidence 1.000")
        )


@pytest.mark.parametrize("command", ["history", "links", "get"])
def test_one_memory(facts, command):
    memory, (superseded, fact) = facts
    for each in (superseded, fact):
        shown = {superseded, fact} & set(ID.findall(json.dumps(memory(command, "fact", each))))
        assert each in shown
        assert_fits(memory.text(command, "fact", each, columns=80), *shown)
        assert_piped(memory.text(command, "fact", each, columns=None), *((one,) for one in shown))


def test_stats_and_export_and_cleanup(facts, tmp_path):
    memory, _ = facts
    for words in (("stats",), ("export", tmp_path / "out"), ("cleanup", "--dry-run"), ("sweep", "--dry-run")):
        assert_fits(memory.text(*words, columns=80))
        assert_piped(memory.text(*words, columns=None))


def test_consolidate_and_retract_from(thinking):
    memory, _ = thinking
    session = str(uuid4())
    for columns in (80, None):
        episode = memory("store-episode", f"{TEXT}{columns}", "--session-id", session)["id"]
        shown = memory.text("consolidate", columns=columns)
        fact = memory("links", "episode", episode)[0]["source_id"]
        assert_fits(shown, episode, fact) if columns else assert_piped(shown, (episode, fact))
    dry_run = ("retract-from", "--session", session, "--dry-run")
    found = memory(*dry_run)["found"]
    assert len(found) == 4
    assert_fits(memory.text(*dry_run, columns=80), *(each["id"] for each in found))
    assert_piped(
        memory.text(*dry_run, columns=None), *((each["state"], each["id"], each["content"].strip()) for each in found)
    )


def test_dead_letters(shell, tmp_path, worker):
    memory = MemoryShell(shell, write_butler(tmp_path, f"cli_{worker}", FAILING))
    episode = memory("store-episode", TEXT)["id"]
    memory.run("consolidate")
    assert_fits(memory.text("dead-letters", columns=80), episode)
    error = "sh ended with exit code 3: the key has run out"
    assert_piped(memory.text("dead-letters", columns=None), (episode, TEXT.strip(), error))


def test_entities_keep_whole_ids_and_names(thinking):
    memory, _ = thinking
    names = ("Chloe Martin-Smith of the Lisbon office", "Chloe Martin")
    first, second = (memory("entity create", name, "person", "--aliases", "Chloe,Coco")["id"] for name in names)
    for words in (("entity list",), ("entity resolve", "Chloe"), ("entity get", first)):
        assert_fits(memory.text(*words, columns=80), first)
        assert_piped(memory.text(*words, columns=None), (first,))
    memory("entity merge", first, second, "--yes")
    assert_fits(memory.text("entity list", "--merged", columns=80), first, f"merged into: {second}")
    assert_piped(memory.text("entity list", "--merged", columns=None), (first, second, names[0]))


def test_the_preview_of_a_merge(render):
    entity = {
        "canonical_name": "Chloe Martin-Smith",
        "entity_type": "organization",
        "aliases": ["Chloe", "Coco"],
        "metadata": {"note": TEXT},
        "live_facts": 12,
        "created_at": NOW.isoformat(),
    }
    fact = {"scope": "global", "predicate": "color", "content": TEXT.strip(), "confidence": 0.5}
    source, target = str(uuid4()), str(uuid4())
    preview = {
        "source": {**entity, "id": source},
        "target": {**entity, "id": target},
        "conflicts": [{"kept": fact, "superseded": fact}],
    }
    folded, piped = render(entity_views.merge_preview(preview))
    assert_fits(folded, source, target, f"{NOW:%Y-%m-%d %H:%M}", "canonical name", "confidence 0.500", "organization")
    assert_piped(piped, (source,), (target,), ("global · color", TEXT.strip(), "confidence 0.500"))


def test_an_import_counts_in_columns(render):
    counts = {"fact": 12, "rule": 3}
    answer = {"tenant": "acme", "imported": counts, "skipped": counts, "memories": 15, "seconds": 1.0}
    folded, piped = render(memory_views.transfer({**answer, "memories_per_second": 15.0}))
    assert_fits(folded, "│ fact │       12 │      12 │")
    assert_piped(piped, ("fact", "12"), ("rule", "3"))
