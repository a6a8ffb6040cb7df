"""The `butlers memory undo` command, as text and as JSON."""

import json
from uuid import uuid4

import pytest

from .test_cli_removal import refused


@pytest.fixture
def memory(thinking):
    return thinking[0]


def test_one_event_is_shown_and_undone(memory):
    fact = memory("store-fact", "Ada", f"diet {uuid4()}", "no meat")["id"]
    memory("forget", "fact", fact)
    event = memory("history", "fact", fact)["events"][-1]["id"]
    shown = memory.text("undo", event, "--dry-run")
    assert "validity: retracted → active" in shown
    assert "Nothing was changed." in shown
    assert memory("get", "fact", fact)["lifecycle"] == "retracted"
    assert "Undone: 1 of the call" in memory.text("undo", event, "--yes")
    assert memory("get", "fact", fact)["lifecycle"] == "active"
    assert memory("undo", event)["already"] is True


def test_the_last_act_is_undone(memory):
    fact = memory("store-fact", "Ada", f"diet {uuid4()}", "no meat")["id"]
    memory("confirm", "fact", fact)
    memory("forget", "fact", fact)
    answer = memory("undo", "--yes")
    assert [each["id"] for each in answer["undone"]] == [fact]
    assert memory("get", "fact", fact)["lifecycle"] == "active"
    assert memory("undo", "--request", answer["request_id"])["already"] is True


def test_a_refusal_names_the_reason_and_nothing_is_asked(memory):
    fact = memory("store-fact", "Ada", f"diet {uuid4()}", "no meat")["id"]
    memory("confirm", "fact", fact)
    event = memory("history", "fact", fact)["events"][-1]["id"]
    memory("confirm", "fact", fact)
    line = refused(memory.run("undo", event))
    assert "this can't be undone" in line
    assert "was changed since by fact_confirmed" in line
    assert "there is no event" in refused(memory.run("undo", str(uuid4())))


def test_without_a_terminal_it_asks_for_yes_and_undoes_nothing(memory):
    fact = memory("store-fact", "Ada", f"diet {uuid4()}", "no meat")["id"]
    memory("forget", "fact", fact)
    result = memory.run("undo", "--json")
    assert result.returncode == 1
    assert "--yes" in result.stderr
    assert memory("get", "fact", fact)["lifecycle"] == "retracted"
    assert json.loads(memory.run("undo", "--yes", "--json").stdout)["number"] == 1
