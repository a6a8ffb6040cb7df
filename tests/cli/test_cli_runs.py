"""The `butlers memory runs` and `take-back` commands, as text and as JSON."""

import pytest

from .test_cli_consolidation import HOSTILE
from .test_cli_removal import refused


@pytest.fixture
def memory(thinking):
    return thinking[0]


@pytest.fixture
def run(memory):
    """Return the id of a run and of the fact that it learned."""
    memory("store-episode", f"User said {HOSTILE}")
    (fact,) = memory("consolidate")["learned"]
    return memory("runs")["runs"][0]["id"], fact["id"]


def test_a_run_is_listed_shown_and_taken_back(memory, run):
    run_id, fact = run
    listed = memory.text("runs")
    assert run_id in listed
    assert "+1 ~0" in listed
    shown = memory.text("runs", run_id)
    assert all(part in shown for part in (fact, "+ new", "active"))
    assert not set(shown) & {"\x1b", "\u202e"}
    preview = memory.text("take-back", run_id, "--dry-run")
    assert "1 would be taken back. Nothing was changed." in preview
    assert memory("get", "fact", fact)["lifecycle"] == "active"
    text = memory.text("take-back", run_id, "--item", fact, "--yes")
    assert "Taken back: 1." in text
    assert memory("get", "fact", fact)["lifecycle"] == "retracted"
    request = text.split("--request ")[1].split()[0]
    memory("undo", "--request", request, "--yes")
    assert memory("get", "fact", fact)["lifecycle"] == "active"


def test_taking_back_twice_says_that_nothing_is_left(memory, run):
    run_id, _ = run
    memory("take-back", run_id, "--yes")
    assert "nothing can be taken back" in refused(memory.run("take-back", run_id, "--yes"))
