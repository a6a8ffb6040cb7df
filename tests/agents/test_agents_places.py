"""Connections of the real agents for their user, and sessions that go on."""

import pytest

from .checks import files
from .model_server import model_server, questions
from .real_agents import ANSWER, PROMPT, REAL_AGENTS, each_agent, run_session, session_variables

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]


@each_agent
async def test_an_agent_connected_for_its_user_knows_the_memories_in_every_project(
    agent, run, butlers, butler, project, owner, known_fact, episodes
):
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        settings = files(owner)
        connected = await butlers("connect", butler, agent.name, "--user")
        assert connected.returncode == 0, connected.stderr
        await run_session(agent, run, model, known_fact)
        assert known_fact in questions(model)[-1]
    assert await episodes(1)
    removed = await butlers("connect", butler, agent.name, "--user", "--remove")
    assert removed.returncode == 0, removed.stderr
    assert {path: text for path, text in files(owner).items() if path in settings} == settings
    # Transcripts of some agents name the commands of hooks.
    left = [path for path, text in files(owner).items() if b"butlers hook" in text and not path.endswith(".jsonl")]
    assert left == []


RESUMED = {
    "claude-code": ("claude", "--continue", "-p", "And milk?"),
    "codex": (
        *("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"),
        *("resume", "--last", "And milk?"),
    ),
    "opencode": ("opencode", "run", "--continue", "And milk?"),
}


@pytest.mark.parametrize("name", RESUMED)
async def test_a_second_turn_is_an_episode_of_its_own_in_the_same_session(
    name, run, butlers, butler, project, owner, known_fact, episodes
):
    agent = REAL_AGENTS[name]
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        await butlers("connect", butler, name, "--project", project)
        variables = session_variables(agent, model.url)
        await run(*agent.command, **variables)
        await episodes(1)
        done = await run(*RESUMED[name], **variables)
        assert ANSWER in done.stdout, done.stderr
    first, second = await episodes(2)
    assert first["session_id"] == second["session_id"]
    assert PROMPT in first["content"]
    assert "And milk?" in second["content"]
