"""Checks of connections: what the real agents say themselves about servers, hooks and trust."""

import json
import re
import sys
from dataclasses import replace

import pytest

from .checks import check
from .model_server import model_server, questions
from .real_agents import ANSWER, REAL_AGENTS, each_agent, run_session, session_variables

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]


@each_agent
async def test_a_check_asks_the_agent_itself(agent, butlers, butler, project, owner, known_fact):
    """Claude Code and Codex have to trust the project first, which is tested below."""
    agent.prepare(owner, project, "http://127.0.0.1:1")
    place = ("--project", project)
    variables = session_variables(agent, "http://127.0.0.1:1")
    missing = await check(butlers, butler, agent, *place, **variables)
    assert set(missing) == {"server"}
    assert missing["server"][0] == "fail"
    await butlers("connect", butler, agent.name, *place)
    found = await check(butlers, butler, agent, *place, **variables)
    assert (found["server"][0], found["hooks"][0]) == ("ok", "ok")
    if agent.name == "claude-code":
        assert found["trust"] == ("fail", "Claude Code says: Pending approval")
    else:
        assert found["tools"][0] == "ok", found
    if agent.name == "codex":
        assert re.fullmatch(r"Codex sees 19 tools of the server agents-\w+", found["tools"][1])


async def test_gemini_says_that_it_does_not_trust_a_folder(butlers, butler, project, owner):
    agent = REAL_AGENTS["gemini"]
    agent.prepare(owner, project, "http://127.0.0.1:1")
    await butlers("connect", butler, "gemini", "--project", project)
    variables = {**session_variables(agent, "x"), "GEMINI_CLI_TRUST_WORKSPACE": ""}
    found = await check(butlers, butler, agent, "--project", project, **variables)
    assert found["trust"] == ("fail", "Gemini CLI says: Disabled")


async def test_codex_runs_no_hook_that_its_user_has_not_approved(
    run, butlers, butler, project, owner, known_fact, episodes
):
    """Approve the hooks as Codex itself would, by their hashes."""
    agent = REAL_AGENTS["codex"]
    command = tuple(word for word in agent.command if word != "--dangerously-bypass-hook-trust")
    async with model_server(ANSWER) as model:
        agent.prepare(owner, project, model.url)
        await butlers("connect", butler, "codex", "--project", project)
        before = await check(butlers, butler, agent, "--project", project, **agent.variables)
        assert before["trust"] == ("fail", "Codex does not run the hooks sessionStart, stop")
        await run(*command, **agent.variables)
        assert known_fact not in questions(model)[-1]
        await approve_hooks(run, owner, project)
        after = await check(butlers, butler, agent, "--project", project, **agent.variables)
        assert after["trust"] == ("ok", "Codex runs the hooks")
        await run_session(replace(agent, command=command), run, model, known_fact)
        assert known_fact in questions(model)[-1]
    assert await episodes(1)


async def approve_hooks(run, owner, project):
    script = (
        "import json, subprocess, sys\n"
        "server = subprocess.Popen(['codex', 'app-server'], stdin=-1, stdout=-1, stderr=-3, text=True)\n"
        "def call(number, method, params):\n"
        "    print(json.dumps({'id': number, 'method': method, 'params': params}), file=server.stdin, flush=True)\n"
        "    return next(m for m in map(json.loads, server.stdout) if m.get('id') == number)['result']\n"
        "call(1, 'initialize', {'clientInfo': {'name': 't', 'version': '1'}})\n"
        "(entry,) = call(2, 'hooks/list', {'cwds': [sys.argv[1]]})['data']\n"
        "print(json.dumps({hook['key']: hook['currentHash'] for hook in entry['hooks']}))\n"
        "server.kill()\n"
    )
    hashes = json.loads((await run(sys.executable, "-c", script, project)).stdout)
    assert len(hashes) == 2
    with (owner / ".codex" / "config.toml").open("a") as file:
        for key, digest in hashes.items():
            file.write(f'\n[hooks.state."{key}"]\ntrusted_hash = "{digest}"\n')
