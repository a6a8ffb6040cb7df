"""The `butlers memory retract-from` and `erase` commands, as text and as JSON."""

import json
import os
import pty
import subprocess
import sys
from uuid import uuid4

import pytest

from .shell import MemoryShell
from .test_cli_consolidation import HOSTILE


@pytest.fixture
def memory(thinking):
    return thinking[0]


@pytest.fixture
def poisoned(memory):
    """Return the ids of a session, its episode and the fact that consolidation made of it."""
    session = str(uuid4())
    episode = memory("store-episode", f"User said {HOSTILE}", "--session-id", session)["id"]
    (fact,) = memory("consolidate")["learned"]
    return session, episode, fact["id"]


def refused(result) -> str:
    """Return the one line of a refused command's stderr."""
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    return line


def test_memories_of_a_session_are_listed_retracted_and_restored(memory, poisoned):
    session, episode, fact = poisoned
    shown = memory.text("retract-from", "--session", session, "--dry-run")
    assert all(part in shown for part in (episode, fact, "Nothing was changed."))
    assert not set(shown) & {"\x1b", "\u202e"}
    assert memory("get", "fact", fact)["lifecycle"] == "active"
    result = memory("retract-from", "--session", session, "--yes")
    assert (result["retracted"], result["dry_run"]) == ({"facts": 1, "rules": 0, "episodes": 1}, False)
    assert memory("get", "fact", fact)["lifecycle"] == "retracted"
    assert memory.text("retract-from", "--undo", result["retraction_id"]) == "Restored 2 memories.\n"
    assert memory("get", "fact", fact)["lifecycle"] == "active"


def test_memories_of_an_episode_are_retracted_and_the_output_says_how_to_undo_it(memory, poisoned):
    _, episode, fact = poisoned
    shown = memory.text("retract-from", "--episode", episode, "--yes")
    assert "Retracted: 1 episodes, 1 facts, 0 rules." in shown
    undo = shown.split("--undo ")[1].split()[0]
    assert memory("retract-from", "--undo", undo) == {"restored": 2, "left_alone": []}
    assert memory("get", "fact", fact)["lifecycle"] == "active"


def test_an_inversion_is_reverted(memory):
    rule = memory("store-rule", "Order seafood for the whole table")["id"]
    assert "not an inverted one" in refused(memory.run("revert-inversion", rule))
    for _ in range(3):
        memory("harmful", rule)
    memory("sweep")
    assert memory("get", "rule", rule)["maturity"] == "anti_pattern"
    shown = memory.text("revert-inversion", rule)
    assert "Order seafood for the whole table" in shown
    assert memory("get", "rule", rule)["content"] == "Order seafood for the whole table"


def test_nothing_is_retracted_without_a_yes(memory, poisoned):
    session, _, fact = poisoned
    message = "butlers: stdin is not a terminal, so the question can't be answered. Pass --yes.\n"
    listed = memory.run("retract-from", "--session", session)
    assert (listed.returncode, fact in listed.stdout, listed.stderr) == (1, True, message)
    aside = memory.run("retract-from", "--session", session, "--json")
    assert (aside.returncode, aside.stdout) == (1, "")
    assert fact in aside.stderr
    assert aside.stderr.endswith(message)
    assert memory("get", "fact", fact)["lifecycle"] == "active"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "one origin is needed"),
        (("--session", "yesterday", "--yes"), "--session is not an id"),
        (("--session", str(uuid4()), "--episode", str(uuid4()), "--yes"), "one origin is needed"),
        (("--undo", str(uuid4())), "there is no retraction"),
        (("--undo", str(uuid4()), "--dry-run"), "--undo has no dry run"),
        (("--undo", str(uuid4()), "--session", str(uuid4())), "undo can't have an origin"),
    ],
)
def test_an_unclear_origin_retracts_nothing(memory, words, message):
    assert refused(memory.run("retract-from", *words)).startswith(f"butlers: {message}")


def test_the_session_of_another_tenant_is_not_found(memory, poisoned, shell):
    session, _, fact = poisoned
    stranger = MemoryShell(shell, memory.folder)
    assert stranger.text("retract-from", "--session", session, "--yes") == "Nothing came from there.\n"
    assert memory("get", "fact", fact)["lifecycle"] == "active"


def exit_code_after_answer(home, memory, answer: str, *words: object) -> int:
    """Return the exit code of a command whose question gets this answer on a terminal."""
    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "memory", *map(str, words), "--tenant", memory.tenant],
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
def test_the_answer_decides(memory, home, answer):
    rule = memory("store-rule", "Be kind")["id"]
    code = exit_code_after_answer(home, memory, answer, "erase", memory.folder, "rule", rule)
    assert code == (0 if answer == "y" else 1)
    assert (memory.run("get", "rule", rule).returncode == 0) == (answer != "y")


def test_a_memory_is_erased_and_remaining_mentions_are_listed(memory):
    episode = memory("store-episode", "She loves marzipan")["id"]
    fact = memory("store-fact", "Ada", "food", "loves marzipan")["id"]
    shown = memory.text("erase", "fact", fact, "--yes")
    assert f"The same text is still stored in:\nepisode {episode}" in shown
    result = memory("erase", "episode", episode, "--yes")
    assert result == {"erased": {"episodes": 1}, "mentions": [], "mentions_truncated": False, "vacuumed": True}
    assert memory.run("get", "fact", fact).returncode == 1
    assert "no fact" in refused(memory.run("erase", "fact", fact, "--yes"))


def test_a_tenant_is_erased_and_its_neighbour_is_not(memory, shell):
    neighbour = MemoryShell(shell, memory.folder)
    for each in (memory, neighbour):
        each("store-fact", "Ada", "food", "marzipan")
        each("store-rule", "Offer marzipan")
    result = memory("erase", "tenant", "--yes")
    assert (result["erased"]["facts"], result["erased"]["rules"]) == (1, 1)
    assert set(result["left"].values()) == {0}
    assert memory("search", "marzipan") == []
    assert len(neighbour("search", "marzipan")) == 2
    again = memory.text("erase", "tenant", "--yes")
    assert "Remaining:" in again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("everything",), "erase takes a type and an id, or tenant"),
        (("fact",), "erase takes a type and an id, or tenant"),
        (("tenant", str(uuid4())), "erase takes a type and an id, or tenant"),
        (("fact", "that one"), "ID is not an id"),
        (("entity", "Ada"), "ID is not an id"),
        (("entity", str(uuid4())), "the entity"),
        (("rule", str(uuid4())), "no rule"),
    ],
)
def test_an_unclear_or_missing_target_erases_nothing(memory, words, message):
    memory("store-fact", "Ada", "food", "marzipan")
    assert refused(memory.run("erase", *words, "--yes")).startswith(f"butlers: {message}")
    assert len(memory("search", "marzipan")) == 1


@pytest.mark.parametrize("words", [("tenant",), ("tenant", "--json")])
def test_nothing_is_erased_without_a_yes(memory, words):
    memory("store-fact", "Ada", "food", "marzipan")
    assert "stdin is not a terminal" in refused(memory.run("erase", *words))
    assert len(memory("search", "marzipan")) == 1


def test_json_of_an_erased_person_has_counts_and_no_name(memory):
    ada = memory("entity create", "Ada", "person")["id"]
    memory("store-fact", "Ada", "food", "marzipan", "--entity-id", ada)
    result = memory.text("erase", "entity", ada, "--yes", "--json")
    assert json.loads(result)["erased"] == {"facts": 1, "entities": 1}
    assert "Ada" not in result
