"""Connections of the real agents to a running butler, with a key that they read from a variable."""

import asyncio
import json
from dataclasses import replace

import pytest

from cli.conftest import write_butler
from database.butler_processes import Processes

from .checks import check, files
from .model_server import model_server, tools
from .real_agents import ANSWER, each_agent, run_session, session_variables

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]


@pytest.fixture
def processes(tmp_path):
    started = Processes(tmp_path)
    yield started
    started.end()


def with_key(agent, key):
    return replace(agent, variables={**agent.variables, "BUTLERS_KEY": key})


@each_agent
async def test_an_agent_reaches_a_running_butler_with_a_key_from_a_variable(
    agent, run, butlers, project, owner, home, tmp_path, worker, processes, unused_port
):
    butler = write_butler(tmp_path, f"keys-{worker}", '[butler.auth]\nmode = "keys"\n')
    text = (butler / "butler.toml").read_text()
    (butler / "butler.toml").write_text(text.replace("port = 0", f"port = {unused_port}"))
    (created,) = json.loads((await butlers("key", "create", butler, "--tenant", "tea", "--json")).stdout)
    key = created["key"]
    running = processes.butler(butler, home)
    await asyncio.to_thread(running.ready)
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        connected = await butlers("connect", butler, agent.name, "--project", project, "--http")
        assert connected.returncode == 0, connected.stderr
        assert key not in "".join(text.decode() for text in files(project).values())
        variables = session_variables(agent, model.url)
        if agent.shows_tools:
            await run_session(with_key(agent, key), run, model, "")
            assert "memory_recall" in tools(model)
            await run(*agent.command, BUTLERS_KEY="wrong", **variables)
            assert "memory_recall" not in tools(model)
        else:
            place = ("--project", project)
            found = await check(butlers, butler, agent, *place, BUTLERS_KEY=key, **variables)
            assert found["tools"][0] == "ok", found
            found = await check(butlers, butler, agent, *place, BUTLERS_KEY="wrong", **variables)
            assert found["tools"][0] == "fail", found
