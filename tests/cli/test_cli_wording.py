"""Messages on the command line speak of commands and options, not of tools and their arguments."""

import re
from pathlib import Path
from uuid import UUID

import pytest

import butlers

from .test_cli_usage import LEAVES

NOWHERE = str(UUID(int=0))
FROM_SEARCH = "`butlers memory search` or `butlers memory recall`"
FROM_ENTITIES = "`butlers memory entity resolve` or `butlers memory entity create`"
REFUSALS = [
    (("get", "fact", NOWHERE), f"no fact {NOWHERE}. Ids come from {FROM_SEARCH}."),
    (("get", "fact", "x"), f"ID is not an id. Send the id of a memory from {FROM_SEARCH}."),
    (("dead-letters", "x", "--retry"), f"ID is not an id. Send the id of a memory from {FROM_SEARCH}."),
    (("entity get", "x"), f"ENTITY_ID is not an id. Send an ENTITY_ID from {FROM_ENTITIES}."),
    (("entity update", NOWHERE), "the change is empty. Send a --canonical-name, aliases or metadata."),
    (("entity create", "Ada", "alien"), "TYPE: Input should be 'person', 'organization', 'place' or 'other'."),
    (("retract-from",), "one origin is needed. Send a --session, an --episode or an --import."),
    (("retract-from", "--session", "x"), "--session is not an id. Send the session's UUID, or leave it out."),
    (("search", "x", "--limit", "1000"), "--limit: Input should be less than or equal to 100."),
    (("context", "x", "--token-budget", "1"), "--token-budget: Input should be greater than or equal to 16."),
]


@pytest.mark.parametrize(("words", "message"), REFUSALS, ids=[" ".join(words) for words, _ in REFUSALS])
def test_a_refusal_names_commands_and_options(shell, place, words, message):
    command, *values = words
    done = shell("memory", *command.split(), place, *values)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"butlers: {message}")


def test_every_tool_that_a_hint_names_has_a_command():
    source = Path(butlers.__file__).parent
    hints = [
        text
        for file in source.rglob("*.py")
        for text in re.findall(r"hint\s*=\s*(?:\w+\()?f?\"([^\"\n]*)\"", file.read_text(encoding="utf-8"))
    ]
    tools = {
        name for hint in hints for name in re.findall(r"\b((?:memory|entity)_(?!id\b|ids\b|type\b)[a-z_]+)", hint)
    }
    assert len(tools) >= 4
    commands = {name.removeprefix("memory ").replace("entity ", "entity_") for name in map(" ".join, LEAVES)}
    spelled = {name.removeprefix("memory_") for name in tools}
    assert {name.replace("_", "-") for name in spelled} <= {name.replace("_", "-") for name in commands}
