"""`butlers memory retract-from` and `erase`, as people and programs run them."""

import json
import os
import pty
import subprocess
import sys
from uuid import uuid4

import pytest

from .shell import Person
from .test_cli_consolidation import HOSTILE


@pytest.fixture
def person(at):
    return at[0]


@pytest.fixture
def poisoned(person):
    """A session's episode and the fact a model made of it."""
    session = str(uuid4())
    episode = person("store-episode", f"User said {HOSTILE}", "--session-id", session)["id"]
    (fact,) = person("consolidate")["learned"]
    return session, episode, fact["id"]


def refused(done) -> str:
    """The one line that says why."""
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_what_came_from_a_session_is_listed_taken_back_and_brought_back(person, poisoned):
    session, episode, fact = poisoned
    shown = person.text("retract-from", "--session", session, "--dry-run")
    assert all(part in shown for part in (episode, fact, "Nothing was changed."))
    assert not set(shown) & {"\x1b", "\u202e"}
    assert person("get", "fact", fact)["lifecycle"] == "active"
    done = person("retract-from", "--session", session, "--yes")
    assert (done["retracted"], done["dry_run"]) == ({"facts": 1, "rules": 0, "episodes": 1}, False)
    assert person("get", "fact", fact)["lifecycle"] == "retracted"
    assert person.text("retract-from", "--undo", done["retraction_id"]) == "2 memories are back.\n"
    assert person("get", "fact", fact)["lifecycle"] == "active"


def test_what_an_episode_led_to_goes_and_how_to_undo_it_is_said(person, poisoned):
    _, episode, fact = poisoned
    shown = person.text("retract-from", "--episode", episode, "--yes")
    assert "Taken back: 1 episodes, 1 facts, 0 rules." in shown
    undo = shown.split("--undo ")[1].split()[0]
    assert person("retract-from", "--undo", undo) == {"restored": 2, "left_alone": []}
    assert person("get", "fact", fact)["lifecycle"] == "active"


def test_nothing_is_taken_back_before_somebody_said_yes(person, poisoned):
    session, _, fact = poisoned
    told = "butlers: nobody is there to be asked. Say --yes, or --dry-run to see what it would do.\n"
    listed = person.run("retract-from", "--session", session)
    assert (listed.returncode, fact in listed.stdout, listed.stderr) == (1, True, told)
    aside = person.run("retract-from", "--session", session, "--json")
    assert (aside.returncode, aside.stdout) == (1, "")
    assert fact in aside.stderr
    assert aside.stderr.endswith(told)
    assert person("get", "fact", fact)["lifecycle"] == "active"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one origin is needed"),
        (("--session", "yesterday", "--yes"), "session_id is not a UUID"),
        (("--session", str(uuid4()), "--episode", str(uuid4()), "--yes"), "one origin is needed"),
        (("--undo", str(uuid4())), "no retraction"),
        (("--undo", str(uuid4()), "--dry-run"), "--undo can't be tried without doing it"),
        (("--undo", str(uuid4()), "--session", str(uuid4())), "undo takes no origin"),
    ],
)
def test_what_is_not_clear_takes_nothing_back(person, words, said):
    assert refused(person.run("retract-from", *words)).startswith(f"butlers: {said}")


def test_another_tenants_session_has_nothing_here(person, poisoned, shell):
    session, _, fact = poisoned
    stranger = Person(shell, person.folder)
    assert stranger.text("retract-from", "--session", session, "--yes") == "Nothing came from there.\n"
    assert person("get", "fact", fact)["lifecycle"] == "active"


def answered(home, person, answer: str, *words: object) -> int:
    """The exit code of a command whose question gets that answer on a terminal."""
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "memory", *map(str, words), "--tenant", person.tenant],
        env={**os.environ, "BUTLERS_HOME": str(home), "TERM": "dumb"},
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.write(leader, f"{answer}\n".encode())
    running.communicate(timeout=60)
    os.close(follower)
    os.close(leader)
    return running.returncode


@pytest.mark.parametrize("answer", ["n", "", "y"])
def test_whoever_is_asked_decides(person, home, answer):
    rule = person("store-rule", "Be kind")["id"]
    code = answered(home, person, answer, "erase", person.folder, "rule", rule)
    assert code == (0 if answer == "y" else 1)
    assert (person.run("get", "rule", rule).returncode == 0) == (answer != "y")


def test_a_memory_is_erased_and_where_its_words_still_stand_is_said(person):
    episode = person("store-episode", "She loves marzipan")["id"]
    fact = person("store-fact", "Ada", "food", "loves marzipan")["id"]
    shown = person.text("erase", "fact", fact, "--yes")
    assert f"The same words still stand in:\nepisode {episode}" in shown
    done = person("erase", "episode", episode, "--yes")
    assert done == {"erased": {"episodes": 1}, "still_said": [], "vacuumed": True}
    assert person.run("get", "fact", fact).returncode == 1
    assert "no fact" in refused(person.run("erase", "fact", fact, "--yes"))


def test_a_tenant_is_erased_and_its_neighbour_is_not(person, shell):
    neighbour = Person(shell, person.folder)
    for each in (person, neighbour):
        each("store-fact", "Ada", "food", "marzipan")
        each("store-rule", "Offer marzipan")
    done = person("erase", "tenant", "--yes")
    assert (done["erased"]["facts"], done["erased"]["rules"]) == (1, 1)
    assert set(done["left"].values()) == {0}
    assert person("search", "marzipan") == []
    assert len(neighbour("search", "marzipan")) == 2
    again = person.text("erase", "tenant", "--yes")
    assert "Left of it:" in again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("everything",), "what is to be erased is not clear"),
        (("fact",), "what is to be erased is not clear"),
        (("tenant", str(uuid4())), "what is to be erased is not clear"),
        (("fact", "that one"), "ID is not an id"),
        (("entity", "Ada"), "ID is not an id"),
        (("entity", str(uuid4())), "the entity"),
        (("rule", str(uuid4())), "no rule"),
    ],
)
def test_what_is_not_clear_or_not_there_erases_nothing(person, words, said):
    person("store-fact", "Ada", "food", "marzipan")
    assert refused(person.run("erase", *words, "--yes")).startswith(f"butlers: {said}")
    assert len(person("search", "marzipan")) == 1


@pytest.mark.parametrize("words", [("tenant",), ("tenant", "--json")])
def test_nothing_is_erased_before_somebody_said_yes(person, words):
    person("store-fact", "Ada", "food", "marzipan")
    assert "nobody is there to be asked" in refused(person.run("erase", *words))
    assert len(person("search", "marzipan")) == 1


def test_json_of_an_erased_person_has_counts_and_no_name(person):
    ada = person("entity create", "Ada", "person")["id"]
    person("store-fact", "Ada", "food", "marzipan", "--entity-id", ada)
    done = person.text("erase", "entity", ada, "--yes", "--json")
    assert json.loads(done)["erased"] == {"facts": 1, "entities": 1}
    assert "Ada" not in done
