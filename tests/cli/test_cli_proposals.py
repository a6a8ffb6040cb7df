"""The `butlers memory proposals` command, on a butler with review = "before"."""

import pytest

from memory.scripted_model import write_scripted_butler

from .shell import MemoryShell
from .test_cli_removal import refused


@pytest.fixture
def memory(shell, tmp_path, worker):
    """A butler whose consolidation proposes."""
    folder, _ = write_scripted_butler(tmp_path, f"cli_{worker}")
    config = folder / "butler.toml"
    config.write_text(config.read_text() + '\n[modules.memory.consolidation]\nreview = "before"\n')
    return MemoryShell(shell, folder)


def test_a_proposal_is_listed_accepted_and_declined(memory):
    memory("store-episode", "She likes the window seat")
    result = memory("consolidate")
    assert (result["learned"], result["proposed"]) == ([], 1)
    (proposal,) = memory("proposals")["proposals"]
    shown = memory.text("proposals")
    assert proposal["id"] in shown
    assert "new fact" in shown
    answer = memory("proposals", "--accept", proposal["id"])
    assert memory("get", "fact", answer["memory_id"])["content"] == proposal["content"]
    assert "is accepted already" in refused(memory.run("proposals", "--decline", proposal["id"]))
    assert memory.text("proposals") == "No proposal waits.\n"
