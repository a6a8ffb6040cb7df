"""The page of the agents against the table in the code."""

import re
from pathlib import Path

import pytest

from butlers.agents import AGENTS

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "connect-agents.md"
ROWS = dict(re.findall(r"^\| `([a-z][a-z-]+)` \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_page_has_every_agent_in_order():
    assert list(ROWS) == list(AGENTS)


@pytest.mark.parametrize("name", AGENTS)
def test_the_page_names_the_files_of_an_agent_and_what_it_can_do(name):
    agent, row = AGENTS[name], ROWS[name]
    places = [agent.servers.place, *([agent.hooks.place] if agent.hooks else [])]
    for place in places:
        project, user = (paths[:1] for paths in (place.project, place.user))
        assert all(f"`{path.format(name='NAME')}`" in row for path in project)
        assert all(path.format(name="NAME").rpartition("/")[2] in row for path in user)
    assert row.startswith("start, " if agent.hooks else "tools only")


def test_the_commands_of_the_page_name_agents():
    named = re.findall(r"butlers connect \S+ ([a-z][a-z-]+)", PAGE.read_text(encoding="utf-8"))
    assert named
    assert set(named) <= set(AGENTS)
