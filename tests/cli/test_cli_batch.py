"""`butlers memory store-batch`."""

import json

import pytest

from .shell import MemoryShell

RULE = {"type": "rule", "content": "Ask before you send an email"}


def lines(*items):
    return "".join(json.dumps(item) + "\n" for item in items)


def note(number):
    return {"type": "fact", "subject": "user", "predicate": f"note_{number}", "content": f"note number {number}"}


@pytest.fixture
def memory(shell, place) -> MemoryShell:
    return MemoryShell(shell, place)


def test_a_file_is_stored_in_parts_and_once_with_a_key(memory, tmp_path):
    file = tmp_path / "memories.jsonl"
    file.write_text(lines(*map(note, range(120)), RULE) + "\n")
    stored = memory("store-batch", file, "--idempotency-key", "monday")
    assert (stored["stored"], len(stored["results"])) == (121, 121)
    again = memory("store-batch", file, "--idempotency-key", "monday")
    assert again["results"] == stored["results"]
    assert memory("stats")["facts"]["active"] == 120


def test_memories_from_stdin_are_stored_and_counted(butlers, place):
    shown = butlers("memory", "store-batch", place, "-", stdin=lines(note(0), RULE))
    assert (shown.returncode, shown.stderr) == (0, "")
    words = [line.split() for line in shown.stdout.splitlines()]
    assert ["facts", "1"] in words
    assert ["rules", "1"] in words
    assert words[-1][:2] == ["2", "memories"]


def test_an_empty_file_is_refused(butlers, place):
    refused = butlers("memory", "store-batch", place, "-", stdin="\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("butlers: - has no memories. ")


def test_a_line_that_is_wrong_is_named_and_nothing_is_stored(memory, tmp_path):
    file = tmp_path / "memories.jsonl"
    file.write_text(lines(RULE, {"type": "fact", "subject": "user", "content": "tea"}))
    refused = memory.run("store-batch", file)
    assert refused.returncode == 1
    assert "line 2: predicate: " in refused.stderr
    assert "Nothing was stored" in refused.stderr
    for wrong, problem in (("tea", "Invalid JSON"), ('{"type": "song"}', "should be an object with a type: episode")):
        file.write_text(wrong)
        assert f"line 1: {problem}" in memory.run("store-batch", file).stderr
    assert memory("stats")["rules"]["total"] == 0


def test_a_line_that_the_butler_refuses_is_named_with_what_is_stored(memory, tmp_path):
    file = tmp_path / "memories.jsonl"
    file.write_text(lines(*map(note, range(100))) + "\n" + lines({**note(1), "entity_id": "nobody"}))
    refused = memory.run("store-batch", file)
    assert refused.returncode == 1
    assert "line 102: entity_id is not an id" in refused.stderr
    assert "100 memories before line 102 are stored" in refused.stderr
