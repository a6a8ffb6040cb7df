"""The `butlers memory entity` commands, as text and as JSON."""

import json
import os
import subprocess
import sys
from typing import get_type_hints

import pytest

from butlers.cli.entities import app as commands
from butlers.modules.memory.tools import TOOLS

from .shell import MemoryShell


@pytest.fixture
def memory(shell, place) -> MemoryShell:
    return MemoryShell(shell, place)


def test_an_entity_from_its_creation_to_its_merge(memory):
    options = ("--aliases", "Chloe,Coco", "--metadata", '{"born": 1990}')
    chloe = memory("entity create", "Chloe Martin", "person", *options)["id"]
    twin = memory("entity create", "C. Martin", "Person", "--idempotency-key", "k")["id"]
    assert memory("entity create", "C. Martin", "Person", "--idempotency-key", "k")["id"] == twin
    memory("store-fact", "Chloe", "hobby", "tennis", "--entity-id", twin)
    entity = memory("entity get", chloe)
    assert (entity["aliases"], entity["metadata"], entity["live_facts"]) == (["Chloe", "Coco"], {"born": 1990}, 0)
    assert memory("entity update", chloe, "--aliases", "[]", "--canonical-name", "Chloe M.")["aliases"] == []
    assert memory("entity update", chloe, "--metadata", '{"a": 1}', "--aliases", "Chloe")["metadata"] == {
        "born": 1990,
        "a": 1,
    }
    (found,) = memory("entity resolve", "chloe")
    assert (found["entity_id"], found["name_match"], found["score"]) == (chloe, "alias", 80.0)
    result = memory("entity merge", twin, chloe, "--yes")
    assert (result["facts_repointed"], result["aliases_added"]) == (1, 1)
    assert [(each["canonical_name"], each["live_facts"]) for each in memory("entity list")] == [("Chloe M.", 1)]
    (merged,) = memory("entity list", "--merged")
    assert (merged["id"], merged["former_name"], merged["merged_into"]) == (twin, "C. Martin", chloe)


def test_a_list_that_stops_at_its_limit_says_so(memory):
    for name in ("Ada", "Bob"):
        memory("entity create", name, "person")
    cut, whole = (memory.run("entity list", "--json", "--limit", limit) for limit in (1, 2))
    assert (len(json.loads(cut.stdout)), cut.stderr) == (1, "These are the first 1. --limit lists more.\n")
    assert (len(json.loads(whole.stdout)), whole.stderr) == (2, "")


def test_hints_tell_two_of_one_name_apart(memory):
    martin = memory("entity create", "Chloe Martin", "person", "--aliases", "Chloe")["id"]
    smith = memory("entity create", "Chloe Smith", "person", "--aliases", "Chloe")["id"]
    memory("store-fact", "Chloe", "hobby", "tennis", "--entity-id", smith)
    for hint in (("--topic", "tennis"), ("--mentioned-with", "a,hobby")):
        assert [each["entity_id"] for each in memory("entity resolve", "Chloe", *hint)] == [smith, martin]
    scores = json.dumps({martin: 30})
    assert [each["score"] for each in memory("entity resolve", "Chloe", "--domain-scores", scores)] == [110.0, 80.0]
    assert memory("entity resolve", "Chloe", "--entity-type", "place") == []
    assert memory("entity resolve", "Cloe Smit") == []
    assert memory("entity resolve", "Cloe Smit", "--fuzzy")[0]["entity_id"] == smith


def merge_and_answer(home, memory, source, target, answer):
    """Merge without --yes, with the answer on stdin."""
    words = ("memory", "entity", "merge", memory.folder, source, target, "--tenant", memory.tenant, "--json")
    return subprocess.run(
        [sys.executable, "-m", "butlers.cli", *map(str, words)],
        env={**os.environ, "BUTLERS_HOME": str(home), "COLUMNS": "160"},
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def two(memory):
    """Return two entities that have a fact with the same key."""
    source = memory("entity create", "C. Martin", "person", "--aliases", "Coco")["id"]
    target = memory("entity create", "Chloe Martin", "person", "--metadata", '{"born": 1990}')["id"]
    for each, content in ((source, "green as grass"), (target, "blue as the sea")):
        memory("store-fact", "Chloe", "color", content, "--entity-id", each)
    return source, target


def test_a_merge_shows_both_side_by_side_and_asks_first(home, memory, two):
    source, target = two
    result = merge_and_answer(home, memory, source, target, "y\n")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["facts_superseded"] == 1
    lines = result.stderr.splitlines()
    assert any("C. Martin" in line and "Chloe Martin" in line for line in lines)
    assert lines[:2] == [f"removed: {source}", f"kept:    {target}"]
    assert any("global · color" in line and "blue as the sea" in line and "green as grass" in line for line in lines)
    assert "born: 1990" in result.stderr
    assert "Merge the first into the second? [y/N]" in result.stderr


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "nothing", "the end of the input"])
def test_any_answer_but_yes_merges_nothing(home, memory, two, answer):
    result = merge_and_answer(home, memory, *two, answer)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith("butlers: nothing was merged. Answer y, or pass --yes.")
    assert len(memory("entity list")) == 2


def test_row_36_people_see_names_and_ids_and_no_name_steers_the_terminal(memory):
    chloe = memory("entity create", "Chloe\x1b[31m [bold]M[/bold] \u202e", "person", "--aliases", "Co\u2066co")["id"]
    other = memory.text("entity create", "Ada", "person")
    assert other.startswith("Created the entity ")
    shown = [
        memory.text("entity list"),
        memory.text("entity resolve", "chloe"),
        memory.text("entity get", chloe),
    ]
    shown.append(memory.text("entity update", chloe, "--metadata", '{"a": "\\u202e"}'))
    for text in shown:
        assert chloe in text
        assert not set(text) & {"\x1b", "\u202e", "\u2066"}
        assert r"Chloe\x1b[31m [bold]M[/bold]" in text
    assert memory.text("entity resolve", "nobody") == "No entity has that name.\n"
    ada = other.split()[-1]
    assert memory.text("entity merge", chloe, ada, "--yes").startswith(f"Merged {chloe} into {ada}: 0 facts moved")
    assert f"merged into: {ada}" in memory.text("entity list", "--merged")
    assert memory.text("entity list", "--entity-type", "place") == "There are no entities.\n"


NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["create", "Ada", "ghost"], "TYPE: Input should be 'person', 'organization', 'place' or 'other'."),
        (["create", " ", "person"], "NAME is blank."),
        (["create", "Ada", "person", "--metadata", "x"], "--metadata: "),
        (["get", "Ada"], "ENTITY_ID is not an id."),
        (["get", NOBODY], f"the entity {NOBODY} does not exist."),
        (["update", NOBODY], "the change is empty."),
        (["update", NOBODY, "--aliases", "a"], f"the entity {NOBODY} does not exist."),
        (["resolve", " "], "name is blank."),
        (["resolve", "Ada", "--domain-scores", "x"], "context-hints: "),
        (["merge", NOBODY, NOBODY], "an entity can't be merged into itself."),
        (["merge", NOBODY, NOBODY, "--yes"], "an entity can't be merged into itself."),
        (["merge", "Ada", NOBODY], "SOURCE_ID is not an id."),
        (["list", "--entity-type", "ghost"], "'ghost' is not an --entity-type."),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_what_can_not_be_done_is_said_in_one_line_and_ends_with_1(memory, words, message):
    command, *rest = words
    refused = memory.run(f"entity {command}", *rest)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"butlers: {message}")
    assert len(refused.stderr.splitlines()) == 1


def test_every_argument_of_an_entity_tool_can_be_given():
    sources = {each.callback.__wrapped__.__name__: each.callback.__wrapped__ for each in commands.registered_commands}
    hints = {"topic", "mentioned_with", "domain_scores"}
    for tool in (each for each in TOOLS if each.name.startswith("entity_")):
        wanted = set(get_type_hints(tool.function)) - {"memory", "caller", "return", "tenant_id"}
        given = set(get_type_hints(sources[tool.name.removeprefix("entity_")]))
        given -= {"folder", "tenant", "as_json", "return", "yes"}
        assert {"context_hints" if word in hints else word for word in given} == wanted, tool.name
