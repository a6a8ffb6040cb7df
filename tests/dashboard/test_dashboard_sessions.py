"""The pages of sessions: what they cost, were told, stored and left behind."""

import json
from dataclasses import replace
from uuid import UUID, uuid4

from butlers.contract import Usage
from butlers.host import session_records
from butlers.host.runtimes.runtime import RuntimeResult
from butlers.modules.memory.operations import context, receipts, viewing_sessions
from butlers.modules.memory.operations.paging import PAGE_ROWS, Start


async def run_session(memory, caller, prompt, usage=None, source="cli", tools=None) -> UUID:
    """Record a session that ended, and what it was told."""
    new = session_records.NewSession(uuid4(), source, prompt, "command", internal=source == "consolidation")
    await session_records.begin_session(memory.database, caller, new, uuid4(), waiting=False)
    session = replace(caller, session_id=str(new.id))
    if not new.internal:
        await context.build_context(memory, session, prompt, memory.butler, None)
    result = RuntimeResult("Green tea.", usage=usage)
    await session_records.finish_session(memory.database, caller, new, "succeeded", result=result, tools=tools or {})
    await receipts.settle(memory)
    return new.id


async def test_without_sessions_the_page_says_how_to_run_one(site, page):
    await page.goto(f"{site.url}/sessions")
    text = await page.locator("main").inner_text()
    assert "0 tokens in 14 days" in text
    assert "No session has run." in text
    assert 'butlers trigger DIR "Which tea should I order?"' in text


async def test_a_session_shows_what_it_knew_did_and_left_behind(site, page, tools, memory, caller):
    await tools.fact("green tea in the morning", subject="Ada", predicate="tea")
    await tools.fact("tea " + "x" * 20_000, subject="Bob", predicate="tea")
    session = await run_session(
        memory, caller, "Which tea?", Usage(1_200, 34), tools={"memory_recall": 2, "memory_search": 1}
    )
    episode = await tools(
        "memory_store_episode", content="Ada ordered tea", butler=memory.butler, session_id=str(session)
    )
    await page.goto(f"{site.url}/sessions")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/sessions/{session}")
    text = await page.locator("main").inner_text()
    assert "Which tea?" in text
    assert "Green tea." in text
    assert "1,200 in, 34 out" in text
    assert "memory_recall 2 \u00d7, memory_search" in text
    told = await page.locator("section[aria-labelledby=told]").inner_text()
    assert "1 told, 1 left out" in told
    assert "Ada · tea green tea in the morning" in told
    await page.get_by_text("1 that it was not told, and why").click()
    assert "too long for any section" in await page.locator("section[aria-labelledby=told]").inner_text()
    assert f"/episodes/{episode['id']}" in await page.content()


async def test_the_keys_lead_to_the_sessions(site, page):
    await page.goto(site.url)
    await page.keyboard.press("g")
    await page.keyboard.press("s")
    await page.wait_for_url("**/sessions")
    assert await page.locator("nav a[aria-current=page]").inner_text() == "Sessions"


async def test_tokens_are_counted_by_day_butler_and_purpose(site, tools, memory, caller, archive):
    await run_session(memory, caller, "One", Usage(1_000, 200))
    old = await run_session(memory, caller, "Two", Usage(500, 0), source="schedule:morning")
    await run_session(memory, caller, "Three")
    await archive.connection.execute("update sessions set started_at = now() - interval '3 days' where id = $1", old)
    await archive.connection.execute(
        "insert into consolidation_runs (tenant_id, butler, lease_token, status, input_tokens, output_tokens)"
        " values ($1, 'general', gen_random_uuid(), 'succeeded', 4000, 300)",
        caller.tenant,
    )
    used = await viewing_sessions.get_token_use(memory, caller)
    assert used.by_day == [0] * 10 + [500, 0, 0, 5_500]
    assert used.by_purpose == {"consolidation": 4_300, "cli": 1_200, "schedule:morning": 500}
    assert used.by_butler == {"general": 4_300, memory.butler: 1_700}
    assert (used.sessions, used.unreported, used.last_day["consolidation"]) == (4, 1, 4_300)
    text = (await site.get("/sessions")).text
    assert "6,000 tokens in 14 days" in text
    assert "1 of them reported no tokens, so the sum is a lower bound" in text
    assert "Consolidation used 4,300 in 24 hours of 1,000,000 allowed." in text
    tokens = (await tools("memory_stats"))["tokens"]
    assert (tokens["total"], tokens["by_purpose"]["schedule:morning"], tokens["sessions_without_usage"]) == (
        6_000,
        500,
        1,
    )
    assert tokens["by_day"] == [0, 0, 0, 500, 0, 0, 5_500]


async def test_sessions_of_agents_are_listed_once_and_filtered(site, memory, caller):
    own = await run_session(memory, caller, "Which tea?", Usage(1, 1))
    agent = replace(caller, session_id=str(uuid4()), details={"agent": "codex"})
    for _ in range(3):
        await context.build_context(memory, agent, "tea", memory.butler, None)
    await receipts.settle(memory)
    found = await viewing_sessions.list_sessions(memory, caller, Start())
    assert [(str(row["id"]), row["kind"]) for row in found.rows] == [(agent.session_id, "agent"), (str(own), "own")]
    assert agent.session_id not in (await site.get("/sessions?kind=own")).text
    text = (await site.get("/sessions?kind=agent")).text
    assert agent.session_id in text
    assert str(own) not in text
    assert "codex" in text


async def test_the_list_continues_behind_a_row_in_both_directions(memory, caller, archive):
    await archive.connection.execute(
        "insert into sessions (tenant_id, butler, trigger_source, prompt, runtime, status, started_at)"
        " select $1, 'b', 'cli', 'p' || n, 'command', 'succeeded', now() - make_interval(mins => n)"
        " from generate_series(1, $2) n",
        caller.tenant, 2 * PAGE_ROWS + 5,
    )  # fmt: skip
    first = await viewing_sessions.list_sessions(memory, caller, Start())
    second = await viewing_sessions.list_sessions(memory, caller, Start(first.older))
    third = await viewing_sessions.list_sessions(memory, caller, Start(second.older))
    back = await viewing_sessions.list_sessions(memory, caller, Start(third.newer, is_backward=True))
    prompts = [row["prompt"] for page in (first, second, third) for row in page.rows]
    assert prompts == [f"p{number}" for number in range(1, 2 * PAGE_ROWS + 6)]
    assert back.rows == second.rows
    assert third.older is None


async def test_a_session_of_another_tenant_is_not_found(site, memory, caller, stranger):
    other = await run_session(memory, replace(caller, tenant=stranger.tenant), "Their secret plan")
    assert (await site.get(f"/sessions/{other}")).status_code == 404
    assert "Their secret plan" not in (await site.get("/sessions")).text
    assert (await site.get(f"/sessions/{uuid4()}")).status_code == 404


async def test_the_tool_lists_sessions_by_pages(tools, memory, caller):
    session = await run_session(memory, caller, "Which tea?", Usage(1, 2))
    answer = await tools("memory_sessions")
    (row,) = answer["sessions"]
    assert (row["id"], row["usage"], answer["next_cursor"]) == (
        str(session), {"input_tokens": 1, "output_tokens": 2}, None,
    )  # fmt: skip
    assert json.dumps(answer)
    refused = await tools.refusal("memory_sessions", cursor="yesterday")
    assert refused.startswith("invalid_input: ")
