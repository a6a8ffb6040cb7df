"""Sessions of the real agents: memories reach the model, and what was done becomes an episode."""

import pytest

from .checks import files
from .model_server import model_server, questions, tools
from .real_agents import ANSWER, PROMPT, each_agent, run_session

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]


@each_agent
async def test_a_connected_agent_knows_the_memories_and_its_turn_is_kept(
    agent, run, butlers, butler, project, owner, known_fact, episodes
):
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        before = files(project)
        connected = await butlers("connect", butler, agent.name, "--project", project)
        assert connected.returncode == 0, connected.stderr
        await run_session(agent, run, model, known_fact)
    assert f"[favourite_tea]: {known_fact}" in questions(model)[-1]
    assert ("memory_recall" in tools(model)) == agent.shows_tools
    *_, episode = await episodes(1)
    assert f"Asked: {PROMPT}" in episode["content"].replace('"', "")
    assert f"Result: {ANSWER}" in episode["content"]
    assert episode["metadata"]["trigger_source"] == agent.name
    removed = await butlers("connect", butler, agent.name, "--project", project, "--remove")
    assert removed.returncode == 0, removed.stderr
    assert {path: text for path, text in files(project).items() if path in before} == before
    assert not [path for path, text in files(project).items() if str(butler).encode() in text]
