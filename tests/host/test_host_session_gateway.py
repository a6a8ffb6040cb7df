"""The system prompt, memories and tools of a session, and its credential at the gateway."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

import models
from butlers.errors import SessionFailed
from butlers.modules.memory.operations import receipts
from host.session_fixtures import (
    LONG_MEMORY_TIMEOUT,
    THINK_RUNTIME,
    TOOL_CALLER,
    session_client,
    wait_until,
    write_program,
)

SESSIONS = f"{THINK_RUNTIME}[butler.sessions]\ntrigger_tool = true\n{LONG_MEMORY_TIMEOUT}"
KEYS = '[butler.auth]\nmode = "keys"\n'
FACT = {"subject": "user", "predicate": "tea", "content": "Darjeeling, the first flush"}
STORING = [
    ["memory_store_fact", FACT],
    ["memory_store_rule", {"content": "Ask before ordering tea"}],
]


def tenant_config(tenant):
    return f'[butler.auth]\ntenant = "{tenant}"\n'


# The system prompt


async def test_a_session_is_told_the_manual_and_then_its_memories(folder, hosting, tenant):
    """Scenario: CC instance receives memory context"""
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    (place / "CLAUDE.md").write_text("\nYou are a butler.\n\nBe kind.\n\n")
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, **FACT)
        block = await at.call_tool(
            "memory_context", tenant, trigger_prompt="Which tea should I order?", butler=at.server.config.name
        )
        answered = await at.spawn("Which tea should I order?", at.caller(tenant))
    stdin = json.loads(answered.text)["stdin"]
    assert "- [user] [tea]: Darjeeling, the first flush" in block
    assert stdin == f"You are a butler.\n\nBe kind.\n\n{block.strip()}\n\nWhich tea should I order?"


async def test_the_context_is_asked_for_by_the_prompt_for_this_butler_as_the_caller(folder, hosting, tenant, caplog):
    """Scenario: CC instance receives memory context"""
    caplog.set_level("INFO", "butlers.calls")
    place = write_program(folder(SESSIONS), "true")
    async with hosting(place) as at:
        await at.spawn("Help user log weight", at.caller(tenant))
    calls = [(line.tool, line.outcome, line.tenant, line.actor) for line in caplog.records if line.msg == "call"]
    assert calls == [
        ("memory_context", "ok", tenant, "ada"),
        ("memory_store_episode", "ok", tenant, "ada"),
    ]


async def test_the_manual_is_read_anew_for_each_session(folder, hosting, tenant):
    place = write_program(folder(SESSIONS, memory=False), "cat")
    manual = place / "CLAUDE.md"
    async with hosting(place) as at:
        without = await at.spawn("How?", at.caller(tenant))
        manual.write_text("Be kind.")
        first = await at.spawn("How?", at.caller(tenant))
        manual.write_text("Be brief.")
        second = await at.spawn("How?", at.caller(tenant))
    assert [each.text for each in (without, first, second)] == ["How?", "Be kind.\n\nHow?", "Be brief.\n\nHow?"]


async def test_without_a_manual_a_session_is_told_its_memories_alone(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), "cat")
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, **FACT)
        answered = await at.spawn("Which tea?", at.caller(tenant))
    assert answered.text.startswith("# Memory Context\n")
    assert answered.text.endswith("(confidence: 1.00)\n\nWhich tea?")


@pytest.mark.parametrize("broken", ["bytes", "folder"])
async def test_a_manual_that_can_not_be_read_is_left_out_with_a_warning(folder, hosting, tenant, caplog, broken):
    place = write_program(folder(SESSIONS, memory=False), "cat")
    if broken == "bytes":
        (place / "CLAUDE.md").write_bytes(b"caf\xe9")
    else:
        (place / "CLAUDE.md").mkdir()
    async with hosting(place) as at:
        answered = await at.spawn("How?", at.caller(tenant))
    assert answered.text == "How?"
    warned = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert len(warned) == 1
    assert warned[0].startswith("CLAUDE.md can't be read")


async def test_a_prompt_of_any_length_finds_its_memories(folder, hosting, tenant, caplog):
    place = write_program(folder(SESSIONS), "head -c 300")
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, **FACT)
        answered = await at.spawn("Which tea? " * 100_000, at.caller(tenant))
        (episode,) = await at.episodes(tenant)
    assert FACT["content"] in answered.text
    assert len(episode["content"]) < 4000
    assert [line for line in caplog.records if line.levelname == "WARNING"] == []


# Tenants


async def test_two_tenants_are_told_their_own_memories_and_an_admin_is_nobody_special(folder, listening, keyring):
    place = write_program(folder(SESSIONS + KEYS), TOOL_CALLER)
    tenants = [f"t-{uuid4().hex}" for _ in range(2)]
    async with listening(place) as site, keyring() as ring:
        keys = [await ring.make(tenants[0], roles=("admin",), elevated=True), await ring.make(tenants[1])]
        for key, tea in zip(keys, ("green", "black"), strict=True):
            await site.call(key, "memory_store_fact", **{**FACT, "content": f"a {tea} tea of mine"})
        asking = json.dumps([["probe_whoami", {}], ["memory_recall", {"topic": "tea", "tenant_id": tenants[1]}]])
        results = [await trigger_session(site, key, asking) for key in keys]
    for number, mine, other in ((0, "green", "black"), (1, "black", "green")):
        assert f"a {mine} tea of mine" in results[number]["stdin"]
        assert other not in json.dumps(results[number]).replace(asking, "")
        who = results[number]["results"][0]["structuredContent"]
        assert (who["tenant"], who["actor"], who["roles"], who["elevated"]) == (tenants[number], "session", [], False)
    assert results[0]["results"][1]["content"][0]["text"].startswith("forbidden: ")


async def trigger_session(site, key, prompt, **more):
    """What the program TOOL_CALLER answers for a prompt that an agent triggers."""
    answer = (await site.call(key, "trigger", prompt=prompt, **more)).json()["result"]
    assert not answer["isError"], answer
    return json.loads(answer["structuredContent"]["answer"])


async def test_what_a_session_for_an_elevated_admin_stores_says_from_where_it_came(folder, listening, keyring):
    """The trail of a tenant shows what was done inside it from outside."""
    place = write_program(folder(SESSIONS + KEYS), TOOL_CALLER)
    home, visited = (f"t-{uuid4().hex}" for _ in range(2))
    async with listening(place) as site, keyring() as ring:
        key = await ring.make(home, roles=("admin",), elevated=True)
        await trigger_session(site, key, json.dumps(STORING), tenant_id=visited)
        events = await ring.owner.fetch("select payload from memory_events where tenant_id = $1", visited)
    came_from = [json.loads(event["payload"]).get("elevated_from") for event in events]
    assert len(came_from) >= 3
    assert set(came_from) == {home}


# The tools, and the credential for them


HOLDS = """
cat > /dev/null
cp "$BUTLERS_MCP_CONFIG" access.new
mv access.new access
while [ ! -e go ]; do sleep 0.03; done
"""


@asynccontextmanager
async def under_way(at, place, caller):
    """A session that waits, and how it reaches the butler's tools; it ends with the block."""
    running = asyncio.ensure_future(at.spawn("Wait.", caller))
    try:
        await wait_until((place / "access").exists, "the session to run")
        yield json.loads((place / "access").read_text())["mcpServers"]["butler"]
    finally:
        (place / "go").touch()
        await running


async def test_a_credential_works_while_its_session_runs_and_not_a_moment_longer(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), HOLDS)
    async with hosting(place) as at:
        async with under_way(at, place, at.caller(tenant)) as access, session_client(access) as client:
            who = (await client.call_tool("probe_whoami", {})).structured_content
            offered = {tool.name for tool in await client.list_tools()}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient() as http:
            late = await http.post(access["url"], json=message, headers={**headers, **access["headers"]})
            nobody = await http.post(access["url"], json=message, headers=headers)
            forged = await http.post(access["url"], json=message, headers={**headers, "Authorization": "Bearer x"})
        async with Client(at.server.mcp) as outside:
            listed = {tool.name for tool in await outside.list_tools()}
    assert (who["tenant"], who["butler"], who["actor"]) == (tenant, at.server.config.name, "session")
    assert listed - offered == {"trigger"}
    assert offered < listed
    assert [each.status_code for each in (late, nobody, forged)] == [401, 401, 401]


async def test_sessions_are_reached_on_loopback_and_only_at_the_butlers_own_tools(folder, hosting, tenant):
    place = write_program(folder(f'{SESSIONS}{KEYS}[butler.http]\nhost = "0.0.0.0"\n'), HOLDS)
    async with hosting(place) as at, under_way(at, place, at.caller(tenant)) as access:
        address = httpx2.URL(access["url"])
        async with session_client(access) as client:
            assert (await client.call_tool("probe_whoami", {})).structured_content["tenant"] == tenant
        outside = [here for here in addresses() if here != "127.0.0.1"]
        async with httpx2.AsyncClient(headers=access["headers"]) as http:
            metrics = await http.get(access["url"].replace("/mcp", "/metrics"))
            rebound = await http.post(access["url"], json={}, headers={"Host": "evil.example"})
    assert address.host == "127.0.0.1"
    assert json.loads((place / "access").read_text())["mcpServers"].keys() == {"butler"}
    assert metrics.status_code == 403, "a session is nobody's admin"
    assert rebound.status_code == 421
    for here in outside:
        with socket.socket() as caller, pytest.raises(OSError, match="refused"):
            caller.connect((here, address.port))


def addresses():
    """The addresses of this machine."""
    found = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout.split()
    return [each for each in found if ":" not in each]


async def test_a_sessions_credential_is_none_at_the_public_door(folder, listening, keyring):
    place = write_program(folder(SESSIONS + KEYS, memory=False), HOLDS)
    async with listening(place) as site, keyring() as ring:
        waiting = asyncio.ensure_future(site.call(await ring.make(), "trigger", prompt="Wait."))
        await wait_until((place / "access").exists, "the session to run")
        access = json.loads((place / "access").read_text())["mcpServers"]["butler"]
        credential = access["headers"]["Authorization"].removeprefix("Bearer ")
        refused = await site.call(credential)
        async with session_client(access) as client:
            assert (await client.call_tool("probe_whoami", {})).structured_content["tenant"] == "acme"
        (place / "go").touch()
        await waiting
    assert refused.status_code == 401
    assert access["url"] != site.mcp


async def test_a_key_of_the_butler_is_none_at_the_sessions_door(folder, listening, keyring):
    """A key revoked at the public address must not work at the gateway."""
    place = write_program(folder(SESSIONS + KEYS, memory=False), HOLDS)
    async with listening(place) as site, keyring() as ring:
        key = await ring.make()
        waiting = asyncio.ensure_future(site.call(key, "trigger", prompt="Wait."))
        await wait_until((place / "access").exists, "the session to run")
        access = json.loads((place / "access").read_text())["mcpServers"]["butler"]
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient() as http:
            refused = await http.post(access["url"], json=message, headers=headers)
        (place / "go").touch()
        await waiting
    assert refused.status_code == 401


async def test_sessions_at_the_same_time_have_credentials_of_their_own(folder, hosting):
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    tenants = [f"t-{uuid4().hex}" for _ in range(3)]
    async with hosting(place) as at:
        work = [at.call_in_session(["probe_whoami", {}], *STORING, caller=at.caller(tenant)) for tenant in tenants]
        done = await asyncio.gather(*work)
        for tenant, each in zip(tenants, done, strict=True):
            assert each["results"][0]["structuredContent"]["tenant"] == tenant
            (fact,) = await at.rows("select metadata from facts", tenant)
            assert fact["metadata"]["session_id"] == each["session"]
            (episode,) = await at.episodes(tenant)
            assert "memory_store_fact, memory_store_rule, probe_whoami" in episode["content"]


# Provenance


async def test_what_a_session_stores_carries_its_id(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    async with hosting(place) as at:
        kept = ["memory_store_episode", {"content": "Ada ordered tea", "butler": at.server.config.name}]
        done = await at.call_in_session(*STORING, kept, caller=at.caller(tenant))
        (fact,) = await at.rows("select metadata, source_butler from facts", tenant)
        (rule,) = await at.rows("select metadata, source_butler from rules", tenant)
        episodes = await at.episodes(tenant)
        events = await at.rows("select actor, payload from memory_events", tenant)
        session = await at.session(tenant)
    assert not any(each["isError"] for each in done["results"])
    assert done["session"] == str(session["id"])
    assert fact["metadata"]["session_id"] == rule["metadata"]["session_id"] == done["session"]
    assert {fact["source_butler"], rule["source_butler"]} == {at.server.config.name}
    assert [each["session_id"] for each in episodes] == [session["id"]] * 2
    assert {(event["payload"]["session_id"], event["payload"]["butler"]) for event in events} == {
        (done["session"], at.server.config.name)
    }
    assert {event["actor"] for event in events} == {"session", "ada"}


async def test_a_session_can_not_store_in_the_name_of_another(folder, hosting, tenant):
    """Models invent ids; the session id of the credential wins."""
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    made_up = str(uuid4())
    async with hosting(place) as at:
        episode = {"content": "Ada ordered tea", "butler": at.server.config.name, "session_id": made_up}
        done = await at.call_in_session(["memory_store_episode", episode], caller=at.caller(tenant))
        stored = {each["session_id"] for each in await at.episodes(tenant)}
    assert UUID(made_up) not in stored, done
    assert stored == {UUID(done["session"])}


async def test_a_session_recalls_what_its_tenant_knows_in_this_butlers_scope(folder, hosting, tenant):
    """Scenario: CC instance calls memory_recall mid-session"""
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    other = f"t-{uuid4().hex}"
    async with hosting(place) as at:
        butler = at.server.config.name
        facts = [
            ("aspirin", "global", tenant),
            ("ibuprofen", butler, tenant),
            ("insulin", "elsewhere", tenant),
            ("warfarin", "global", other),
        ]
        for drug, scope, whose in facts:
            fact = {"subject": "user", "predicate": f"takes_{drug}", "content": f"{drug} in the morning"}
            await at.call_tool("memory_store_fact", whose, **fact, scope=scope)
        done = await at.call_in_session(["memory_recall", {"topic": "user medications"}], caller=at.caller(tenant))
    found = json.dumps(done["results"][0]["structuredContent"])
    assert [drug for drug, *_ in facts if drug in found] == ["aspirin", "ibuprofen"]
    assert [drug for drug, *_ in facts if drug in done["stdin"]] == ["aspirin", "ibuprofen"]


async def test_a_butler_recalls_by_its_own_weights(folder, hosting, tenant):
    """Scenario: Butler with custom retrieval weights"""
    weights = "[modules.memory.retrieval]\nscore_weights = {{ relevance = {}, importance = {} }}\n"
    firsts = []
    for relevance, importance in ((1.0, 0.0), (0.0, 1.0)):
        place = write_program(folder(SESSIONS), "cat")
        with (place / "butler.toml").open("a") as file:
            file.write(weights.format(relevance, importance))
        async with hosting(place) as at:
            await at.call_tool(
                "memory_store_fact", tenant, subject="user", predicate="tea", content="drinks green tea"
            )
            await at.call_tool(
                "memory_store_fact",
                tenant,
                subject="user",
                predicate="allergy",
                content="is allergic to peanuts",
                importance=10,
            )
            stdin = (await at.spawn("Which tea does the user drink?", at.caller(tenant))).text
        firsts.append(next(line for line in stdin.splitlines() if line.startswith("- ")))
    assert "green tea" in firsts[0]
    assert "peanuts" in firsts[1]


# Transports


@pytest.mark.parametrize("mode", ["local", "keys"])
@pytest.mark.parametrize("door", ["run", "stdio", "trigger"])
async def test_memory_is_around_a_session_whatever_the_butler_is_reached_by(
    folder, process, hosting, keyring, variables, tmp_path, tenant, door, mode
):
    place = write_program(
        folder(f'{SESSIONS}[butler.auth]\nmode = "{mode}"\ntenant = "{tenant}"\n', probe=False), TOOL_CALLER
    )
    prompt = json.dumps([["memory_recall", {"topic": "tea"}], *STORING[1:]])
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", **FACT)
    reach = {"run": by_http, "stdio": by_stdio, "trigger": by_command}[door]
    tools = {"process": process, "keyring": keyring, "variables": variables, "tmp_path": tmp_path, "tenant": tenant}
    answer = await reach(place, prompt, tools)
    results = json.loads(answer)
    async with hosting(place) as at:
        session, (episode,) = await at.session(), await at.episodes()
        (rule,) = await at.rows("select metadata from rules")
    assert FACT["content"] in results["stdin"]
    assert FACT["content"] in json.dumps(results["results"][0]["structuredContent"])
    assert rule["metadata"]["session_id"] == results["session"] == str(session["id"])
    assert (episode["session_id"], session["status"]) == (session["id"], "succeeded")


async def by_http(place, prompt, tools):
    address = tools["process"](place, probe=False).ready()
    async with tools["keyring"]() as ring:
        key = await ring.make(tools["tenant"])
    async with Client(address, auth=key) as client:
        return (await client.call_tool("trigger", {"prompt": prompt})).structured_content["answer"]


async def by_stdio(place, prompt, tools):
    arguments, log = ["-m", "butlers.cli", "run", str(place), "--stdio"], tools["tmp_path"] / "log"
    transport = StdioTransport(sys.executable, arguments, env=tools["variables"], keep_alive=False, log_file=log)
    async with Client(transport) as client:
        return (await client.call_tool("trigger", {"prompt": prompt})).structured_content["answer"]


async def by_command(place, prompt, tools):
    program = [sys.executable, "-m", "butlers.cli", "trigger", str(place), prompt]
    done = await asyncio.to_thread(
        subprocess.run, program, env=tools["variables"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_model_behind_a_chat_server_has_the_tools_as_well(folder, hosting, tenant):
    script = [models.calls(("memory_store_fact", FACT)), models.talks("Noted.")]
    async with models.chat(script) as model:
        runtime = f'[butler.runtime]\ntype = "openai"\nbase_url = "{model.url}/v1"\nmodel = "m"\n'
        place = folder(f"{runtime}[butler.sessions]\n{LONG_MEMORY_TIMEOUT}")
        (place / "CLAUDE.md").write_text("Be kind.")
        async with hosting(place) as at:
            answered = await at.spawn("I drink Darjeeling.", at.caller(tenant))
            (fact,) = await at.rows("select metadata from facts", tenant)
            (episode,) = await at.episodes(tenant)
    assert answered.text == "Noted."
    assert model.asked[0].system.strip().startswith("Be kind.\n\n# Memory Context")
    assert fact["metadata"]["session_id"] == str(answered.session_id)
    assert "Done: called memory_store_fact." in episode["content"]


# Receipts


async def test_a_session_keeps_what_it_was_told_and_recalled_and_that_is_evidence(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, **FACT)
        rule = (await at.call_tool("memory_store_rule", tenant, content="Ask before ordering tea"))["id"]
        calls = [["memory_recall", {"topic": "tea"}], ["memory_mark_helpful", {"rule_id": rule}]]
        answered = await at.spawn(json.dumps(calls), at.caller(tenant))
        await receipts.settle(at.butler.modules[0].state)
        rows = await at.rows("select source, told, session_id, agent from session_receipts order by told_at", tenant)
    assert [(row["source"], row["told"]) for row in rows] == [("context", 2), ("recall", 2)]
    assert {(row["session_id"], row["agent"]) for row in rows} == {(answered.session_id, None)}
    (_, marked) = json.loads(answered.text)["results"]
    assert marked["structuredContent"]["evidence"] == "told"


async def test_a_session_can_not_name_another_session_in_a_header(folder, hosting, tenant):
    program = TOOL_CALLER.replace(
        '**server["butler"]["headers"]}', f'**server["butler"]["headers"], "X-Session-Id": "{uuid4()}"}}'
    )
    place = write_program(folder(SESSIONS), program)
    async with hosting(place) as at:
        answered = await at.spawn(json.dumps([["memory_recall", {"topic": "tea"}]]), at.caller(tenant))
        await receipts.settle(at.butler.modules[0].state)
        rows = await at.rows("select distinct session_id from session_receipts", tenant)
    assert rows == [{"session_id": answered.session_id}]


async def test_receipts_of_a_butler_that_stops_at_once_are_stored(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), "true")
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, **FACT)
        await at.spawn("Which tea?", at.caller(tenant))
    async with hosting(place) as at:
        assert len(await at.rows("select from session_receipts", tenant)) == 1


async def test_the_record_of_a_session_counts_its_calls_by_tool(folder, hosting, tenant):
    place = write_program(folder(SESSIONS), TOOL_CALLER)
    async with hosting(place) as at:
        calls = [["memory_recall", {"topic": "tea"}], ["memory_recall", {"topic": "cake"}], *STORING]
        await at.spawn(json.dumps(calls), at.caller(tenant))
        row = await at.session(tenant)
    assert row["tools"] == {"memory_recall": 2, "memory_store_fact": 1, "memory_store_rule": 1}


async def test_tokens_of_sessions_are_metrics_by_purpose(folder, hosting, tenant):
    place = folder('[butler.runtime]\ncommand = ["./think"]\n', memory=False)
    answer = json.dumps({"result": "Well.", "session_id": "s", "usage": {"input_tokens": 5, "output_tokens": 13}})
    write_program(place, f"cat > /dev/null\ncat <<'END'\n{answer}\nEND")
    async with hosting(place) as at:
        for source in ("schedule:morning", "tool:ada", "tool:grace"):
            await at.spawn("How are you?", at.caller(tenant), trigger_source=source)
        write_program(place, "exit 3")
        with pytest.raises(SessionFailed):
            await at.spawn("How are you?", at.caller(tenant), trigger_source="cli")
        shown = (await at.server.metrics.render(at.server.database, {})).decode()
    assert 'butlers_session_tokens_total{direction="input",purpose="tool"} 10.0' in shown
    assert 'butlers_session_tokens_total{direction="output",purpose="schedule:morning"} 13.0' in shown
    assert 'butlers_sessions_total{outcome="failed",purpose="cli"} 1.0' in shown
    assert 'butlers_sessions_without_usage_total{purpose="cli"} 1.0' in shown
    assert "ada" not in shown
