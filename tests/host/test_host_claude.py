"""The runtime for the real Claude Code CLI, offline, with a scripted model server and real butlers."""

import asyncio
import json
from uuid import uuid4

import psutil
import pytest
from fastmcp import Client

import models
from butlers.caller import Caller
from butlers.contract import Usage
from butlers.errors import SessionFailed, TimedOut
from butlers.host.runtimes.claude import ClaudeRuntime
from butlers.host.runtimes.runtime import McpAccess, SessionTask
from claude import INSTALLING_SECONDS
from database.butler_processes import wait_until
from models import refuses, uses, writes

WELL = writes("Very well.")
pytestmark = pytest.mark.timeout(INSTALLING_SECONDS)


def session_task(prompt="How are you?", seconds=60.0, **more):
    return SessionTask(uuid4(), prompt, seconds, **more)


def session_pids(session) -> list[int]:
    """Return the processes with the session's id in their arguments."""
    found = psutil.process_iter(["cmdline"])
    return [process.pid for process in found if str(session) in (process.info["cmdline"] or ())]


# A session without tools


async def test_what_the_model_writes_is_the_answer_and_what_it_took_is_counted(cli, standing, owner):
    task = session_task("a private question")
    async with standing([writes("a private answer", taken=23, given=5)]) as model:
        outcome = await ClaudeRuntime([cli, "--model", "claude-of-our-own"]).run(task)
    assert outcome.text == "a private answer"
    assert outcome.session_id == str(task.session_id)
    # The model server reports two tokens written to a cache and three read from it.
    assert outcome.usage == Usage(28, 5)
    assert model.asked[0].headers["x-api-key"] == "any"
    assert model.asked[0].body["model"] == "claude-of-our-own"
    kept = [path for path in owner.rglob("*") if path.is_file() and "a private" in path.read_text(errors="replace")]
    assert kept == [], "a transcript"


async def test_the_prompt_and_the_system_prompt_reach_the_model_and_no_built_in_tool_does(cli, standing):
    prompt = "Wie geht's? \N{SLICE OF PIZZA}\n" + "x" * 300_000
    async with standing([WELL]) as model:
        await ClaudeRuntime([cli]).run(session_task(prompt, system_prompt="You are a butler\nwith 'manners'."))
    (request,) = model.asked
    assert prompt in request.prompt
    assert "You are a butler\nwith 'manners'." in request.system
    assert request.tools == []


@pytest.mark.parametrize("prompt", ["/context of the talk?", "@/etc/hosts says what?"])
async def test_a_prompt_is_never_a_command_of_the_cli(cli, standing, prompt):
    async with standing([WELL]) as model:
        outcome = await ClaudeRuntime([cli]).run(session_task(prompt))
    assert outcome.text == "Very well."
    assert [prompt in request.prompt for request in model.asked] == [True]
    assert "localhost" not in model.asked[0].prompt


async def test_the_settings_hooks_servers_and_notes_of_the_user_have_no_part_in_it(cli, standing, owner):
    hook = [{"hooks": [{"type": "command", "command": f"touch {owner}/hooked; echo PRIVATE"}]}]
    settings = {"hooks": {"SessionStart": hook, "UserPromptSubmit": hook, "Stop": hook}, "model": "PRIVATE"}
    server = {"command": "/bin/sh", "args": ["-c", f"touch {owner}/served; cat"]}
    (owner / ".claude" / "agents").mkdir(parents=True)
    (owner / ".claude" / "agents" / "a.md").write_text("---\nname: a\ndescription: PRIVATE\n---\nPRIVATE")
    (owner / ".claude" / "CLAUDE.md").write_text("PRIVATE")
    (owner / ".claude" / "settings.json").write_text(json.dumps(settings))
    (owner / ".claude.json").write_text(json.dumps({"mcpServers": {"other": server}}))
    async with standing([WELL]) as model:
        await ClaudeRuntime([cli]).run(session_task())
    assert "PRIVATE" not in json.dumps(model.asked[0].body)
    assert not (owner / "hooked").exists()
    assert not (owner / "served").exists()


async def test_a_built_in_tool_the_model_asks_for_is_not_there(cli, standing, owner):
    async with standing([uses("Bash", {"command": f"touch {owner}/ran"}), WELL]) as model:
        outcome = await ClaudeRuntime([cli]).run(session_task())
    assert outcome.text == "Very well."
    assert outcome.usage == Usage(56, 10)
    assert len(model.asked) == 2
    assert not (owner / "ran").exists()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (refuses(400, "invalid_request_error", "no such tea"), "400 no such tea"),
        (refuses(500, "api_error", "out of order"), "500 out of order"),
    ],
)
async def test_an_error_of_the_model_is_a_session_that_failed(cli, standing, reply, expected):
    async with standing([reply]):
        with pytest.raises(SessionFailed) as failed:
            await ClaudeRuntime([cli]).run(session_task())
    assert expected in failed.value.message


async def test_a_model_that_hangs_is_given_up_and_the_cli_ended(cli, standing):
    task = session_task(seconds=4)
    async with standing([models.Reply(seconds=60)]):
        with pytest.raises(TimedOut):
            await ClaudeRuntime([cli]).run(task)
    wait_until(lambda: not session_pids(task.session_id), "the CLI to be gone", 5)


async def test_a_cancelled_session_ends_the_cli(cli, standing):
    task = session_task()
    async with standing([models.Reply(seconds=60)]) as model:
        session = asyncio.ensure_future(ClaudeRuntime([cli]).run(task))
        while not model.asked:  # noqa: ASYNC110 — the server has no event to wait for
            await asyncio.sleep(0.02)
        assert session_pids(task.session_id)
        session.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(session, 10)
    wait_until(lambda: not session_pids(task.session_id), "the CLI to be gone", 5)


# With the butler's tools


async def test_a_tool_the_model_uses_is_called_on_the_butler(cli, standing, folder, listening):
    tenant = f"t-{uuid4().hex}"
    fact = {"subject": "user", "predicate": "drinks", "content": "tea without milk"}
    use = uses("mcp__butler__memory_store_fact", fact)
    async with listening(folder(f'[butler.auth]\ntenant = "{tenant}"\n')) as site:
        async with standing([use, WELL]) as model:
            outcome = await ClaudeRuntime([cli]).run(session_task(mcp=McpAccess(site.mcp)))
        async with Client(site.mcp) as client:
            listed = {tool.name for tool in await client.list_tools()}
        caller = Caller(tenant=tenant, butler=site.server.config.name, actor="a test")
        stored = (await models.remembered(site.server.database, caller))["facts"]
    assert [(each["predicate"], each["content"]) for each in stored] == [("drinks", "tea without milk")]
    assert outcome.text == "Very well."
    assert outcome.usage == Usage(56, 10)
    assert set(model.asked[0].tools) == {f"mcp__butler__{name}" for name in listed}
    (result,) = model.asked[1].messages[-1]["content"]
    assert result["type"] == "tool_result"
    assert not result.get("is_error")


async def test_an_error_of_a_tool_comes_back_to_the_model(cli, standing, folder, listening):
    use = uses("mcp__butler__probe_fail", {"how": "fault"})
    async with listening(folder(memory=False)) as site, standing([use, WELL]) as model:
        outcome = await ClaudeRuntime([cli]).run(session_task(mcp=McpAccess(site.mcp)))
    assert outcome.text == "Very well."
    assert "conflict: it is taken. Take another." in json.dumps(model.asked[1].messages[-1])


async def test_the_cli_calls_tools_with_the_key_it_is_given(cli, standing, folder, listening, keyring):
    tenant = f"t-{uuid4().hex}"
    place = folder('[butler.auth]\nmode = "keys"\n', memory=False)
    async with (
        listening(place) as site,
        keyring() as ring,
        standing([uses("mcp__butler__probe_whoami", {}), WELL]) as model,
    ):
        access = McpAccess(site.mcp, {"Authorization": f"Bearer {await ring.make(tenant)}"})
        await ClaudeRuntime([cli]).run(session_task(mcp=access))
    assert tenant in json.dumps(model.asked[1].messages[-1])


async def test_episodes_become_facts_through_the_claude_cli(cli, standing, folder, listening):
    tenant = f"t-{uuid4().hex}"
    place = folder(f'[butler.runtime]\ntype = "claude"\ncommand = ["{cli}"]\n[butler.auth]\ntenant = "{tenant}"\n')
    script = lambda request: writes(models.lessons(request.prompt), taken=1234, given=56)  # noqa: E731
    async with standing(script) as model, listening(place) as site:
        await models.assert_consolidates(site, tenant, runtime="claude", taken=1239, given=56)
    assert len(model.asked) == 1
    assert "She asked for green tea." in model.asked[0].prompt
    assert model.asked[0].tools == []
