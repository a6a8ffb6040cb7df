"""The plugin in the real Claude Code and Codex, and the extension in the real Gemini CLI."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from .conftest import Run
from .model_server import model_server, questions, tools
from .real_agents import ANSWER, PROMPT, REAL_AGENTS, run_session, session_variables

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "extensions" / "gemini"
INSTALLATIONS = {
    "claude-code": (
        ("claude", "plugin", "marketplace", "add", ROOT),
        ("claude", "plugin", "install", "butlers@butlers"),
    ),
    "codex": (
        ("codex", "plugin", "marketplace", "add", ROOT),
        ("codex", "plugin", "add", "butlers@butlers"),
    ),
    "gemini": (("gemini", "extensions", "install", EXTENSION, "--consent", "--skip-settings"),),
}


async def install(name: str, run: Run) -> None:
    """Install the plugin or extension in an agent."""
    for words in INSTALLATIONS[name]:
        done = await run(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("claude", "plugin", "validate", ROOT),
        ("claude", "plugin", "validate", ROOT / "plugins" / "butlers"),
        ("gemini", "extensions", "validate", EXTENSION),
    ],
    ids=["marketplace", "plugin", "extension"],
)
async def test_the_agents_own_validators_accept_the_files(words, run):
    done = await run(*words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", INSTALLATIONS)
async def test_an_installed_plugin_brings_memories_in_and_keeps_the_session(
    name, run, butler, project, owner, known_fact, episodes
):
    agent = REAL_AGENTS[name]
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        run_here = partial(run, BUTLERS_FOLDER=str(butler), **session_variables(agent, model.url))
        await install(name, run_here)
        await run_session(agent, run_here, model, known_fact)
    assert f"[favourite_tea]: {known_fact}" in questions(model)[-1]
    assert ("memory_recall" in tools(model)) == agent.shows_tools
    *_, episode = await episodes(1)
    assert (episode["metadata"]["trigger_source"], PROMPT in episode["content"]) == (name, True)


@pytest.mark.parametrize("name", INSTALLATIONS)
async def test_the_first_start_of_a_plugin_creates_its_butler(name, run, project, owner, cluster):
    """The server finds its script, and its variables reach it: that of Codex inherits none by default."""
    agent = REAL_AGENTS[name]
    here = owner / "memory of mine"
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        run_here = partial(run, BUTLERS_FOLDER=str(here), **session_variables(agent, model.url))
        await install(name, run_here)
        done = await run_here(*agent.command)
    assert (done.returncode, (here / "butler.toml").exists()) == (0, True), done.stderr
    shutil.rmtree(here)
