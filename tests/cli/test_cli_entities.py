"""`butlers memory entity …`, as people and programs run it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints
from uuid import uuid4

import pytest

from butlers.cli.entities import app as commands
from butlers.modules.memory.tools import TOOLS

from .shell import Shell


class Known:
    """Runs `butlers memory entity COMMAND` on a tenant of its own; with `--json`, gives what was answered."""

    def __init__(self, shell: Shell, place: Path) -> None:
        self._shell, self.place, self.tenant = shell, place, f"t{uuid4().hex[:12]}"

    def run(self, name, *words, group=("entity",)):
        return self._shell("memory", *group, name, self.place, *words, "--tenant", self.tenant)

    def __call__(self, name, *words, as_json=True, group=("entity",)):
        result = self.run(name, *words, *(["--json"] if as_json else []), group=group)
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout) if as_json else result.stdout


@pytest.fixture
def known(shell, place) -> Known:
    return Known(shell, place)


def test_an_entity_from_its_creation_to_its_merge(known):
    chloe = known("create", "Chloe Martin", "person", "--aliases", "Chloe,Coco", "--metadata", '{"born": 1990}')["id"]
    twin = known("create", "C. Martin", "Person", "--idempotency-key", "k")["id"]
    assert known("create", "C. Martin", "Person", "--idempotency-key", "k")["id"] == twin
    known("store-fact", "Chloe", "hobby", "tennis", "--entity-id", twin, group=())
    whole = known("get", chloe)
    assert (whole["aliases"], whole["metadata"], whole["live_facts"]) == (["Chloe", "Coco"], {"born": 1990}, 0)
    assert known("update", chloe, "--aliases", "[]", "--canonical-name", "Chloe M.")["aliases"] == []
    assert known("update", chloe, "--metadata", '{"a": 1}', "--aliases", "Chloe")["metadata"] == {
        "born": 1990,
        "a": 1,
    }
    (found,) = known("resolve", "chloe")
    assert (found["entity_id"], found["name_match"], found["score"]) == (chloe, "alias", 80.0)
    done = known("merge", twin, chloe, "--yes")
    assert (done["facts_repointed"], done["aliases_added"]) == (1, 1)
    assert [(each["canonical_name"], each["live_facts"]) for each in known("list")] == [("Chloe M.", 1)]
    (gone,) = known("list", "--merged")
    assert (gone["id"], gone["former_name"], gone["merged_into"]) == (twin, "C. Martin", chloe)


def test_hints_tell_two_of_one_name_apart(known):
    martin = known("create", "Chloe Martin", "person", "--aliases", "Chloe")["id"]
    smith = known("create", "Chloe Smith", "person", "--aliases", "Chloe")["id"]
    known("store-fact", "Chloe", "hobby", "tennis", "--entity-id", smith, group=())
    assert [each["entity_id"] for each in known("resolve", "Chloe", "--topic", "tennis")] == [smith, martin]
    assert [each["entity_id"] for each in known("resolve", "Chloe", "--mentioned-with", "a,hobby")] == [smith, martin]
    scores = json.dumps({martin: 30})
    assert [each["score"] for each in known("resolve", "Chloe", "--domain-scores", scores)] == [110.0, 80.0]
    assert known("resolve", "Chloe", "--entity-type", "place") == []
    assert known("resolve", "Cloe Smit") == []
    assert known("resolve", "Cloe Smit", "--fuzzy")[0]["entity_id"] == smith


def merged_by_hand(known, source, target, answer):
    """A merge without --yes, with that on stdin."""
    words = ("memory", "entity", "merge", known.place, source, target, "--tenant", known.tenant, "--json")
    return subprocess.run(
        [sys.executable, "-m", "butlers.cli", *map(str, words)],
        env={**os.environ, "BUTLERS_HOME": str(known.home), "COLUMNS": "160"},
        input=answer,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def two(known, home):
    """Two entities with a fact each under one key."""
    known.home = home
    source = known("create", "C. Martin", "person", "--aliases", "Coco")["id"]
    target = known("create", "Chloe Martin", "person", "--metadata", '{"born": 1990}')["id"]
    for each, content in ((source, "green as grass"), (target, "blue as the sea")):
        known("store-fact", "Chloe", "color", content, "--entity-id", each, group=())
    return source, target


def test_a_merge_shows_both_side_by_side_and_asks_first(known, two):
    source, target = two
    result = merged_by_hand(known, source, target, "y\n")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["facts_superseded"] == 1
    lines = result.stderr.splitlines()
    assert any("C. Martin" in line and "Chloe Martin" in line for line in lines)
    assert any(source in line and target in line for line in lines)
    assert any("global · color" in line and "blue as the sea" in line and "green as grass" in line for line in lines)
    assert "born: 1990" in result.stderr
    assert "Merge the first into the second? [y/N]" in result.stderr


@pytest.mark.parametrize("answer", ["n\n", "\n", ""], ids=["no", "nothing", "the end of the input"])
def test_whoever_does_not_say_yes_merges_nothing(known, two, answer):
    result = merged_by_hand(known, *two, answer)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith("butlers: nothing was merged. Answer y, or pass --yes.")
    assert len(known("list")) == 2


def test_row_36_people_see_names_and_ids_and_no_name_steers_the_terminal(known):
    made = known("create", "Chloe\x1b[31m [bold]M[/bold] \u202e", "person", "--aliases", "Co\u2066co")["id"]
    other = known("create", "Ada", "person", as_json=False)
    assert other.startswith("Created the entity ")
    shown = [
        known("list", as_json=False),
        known("resolve", "chloe", as_json=False),
        known("get", made, as_json=False),
    ]
    shown.append(known("update", made, "--metadata", '{"a": "\\u202e"}', as_json=False))
    for text in shown:
        assert made in text
        assert not set(text) & {"\x1b", "\u202e", "\u2066"}
        assert r"Chloe\x1b[31m [bold]M[/bold]" in text
    assert known("resolve", "nobody", as_json=False) == "Nobody has that name.\n"
    ada = other.split()[-1]
    assert known("merge", made, ada, "--yes", as_json=False).startswith(f"Merged {made} into {ada}: 0 facts moved")
    assert f"merged into {ada}" in known("list", "--merged", as_json=False)
    assert known("list", "--entity-type", "place", as_json=False) == "There are no entities.\n"


NOBODY = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "Ada", "ghost"], "entity-type: Input should be 'person', 'organization', 'place' or 'other'."),
        (["create", " ", "person"], "canonical_name is blank."),
        (["create", "Ada", "person", "--metadata", "x"], "metadata: "),
        (["get", "Ada"], "entity_id is not an id."),
        (["get", NOBODY], f"the entity {NOBODY} does not exist."),
        (["update", NOBODY], "nothing is to be changed."),
        (["update", NOBODY, "--aliases", "a"], f"the entity {NOBODY} does not exist."),
        (["resolve", " "], "name is blank."),
        (["resolve", "Ada", "--domain-scores", "x"], "context-hints: "),
        (["merge", NOBODY, NOBODY], "an entity can't be merged into itself."),
        (["merge", NOBODY, NOBODY, "--yes"], "an entity can't be merged into itself."),
        (["merge", "Ada", NOBODY], "source_entity_id is not an id."),
        (["list", "--entity-type", "ghost"], "'ghost' is not an entity_type."),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, list) else "",
)
def test_what_can_not_be_done_is_said_in_one_line_and_ends_with_1(known, words, said):
    command, *rest = words
    refused = known.run(command, *rest)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"butlers: {said}")
    assert len(refused.stderr.splitlines()) == 1


def test_every_argument_of_an_entity_tool_can_be_given():
    sources = {each.callback.__wrapped__.__name__: each.callback.__wrapped__ for each in commands.registered_commands}
    hints = {"topic", "mentioned_with", "domain_scores"}
    for tool in (each for each in TOOLS if each.name.startswith("entity_")):
        wanted = set(get_type_hints(tool.function)) - {"memory", "caller", "return", "tenant_id"}
        given = set(get_type_hints(sources[tool.name.removeprefix("entity_")]))
        given -= {"folder", "tenant", "as_json", "return", "yes"}
        assert {"context_hints" if word in hints else word for word in given} == wanted, tool.name
