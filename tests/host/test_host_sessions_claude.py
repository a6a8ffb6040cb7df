"""Sessions end to end, with the real Claude CLI and a scripted model server."""

import json

import pytest

from butlers.errors import SessionFailed
from claude import INSTALLING_SECONDS
from host.session_fixtures import LONG_MEMORY_TIMEOUT
from models import refuses, uses, writes

pytestmark = pytest.mark.timeout(INSTALLING_SECONDS)
FACT = {"subject": "user", "predicate": "drinks", "content": "Darjeeling, the first flush, without milk"}
WELL = writes("Very well, I shall remember.")


@pytest.fixture
def claude_folder(folder, cli):
    """Write the folder of a butler whose runtime is the CLI."""

    def write(manual):
        place = folder(f'[butler.runtime]\ncommand = ["{cli}"]\n[butler.sessions]\n{LONG_MEMORY_TIMEOUT}')
        (place / "CLAUDE.md").write_text(manual)
        return place

    return write


def tool_results(request):
    """Return the tool results in a request."""
    parts = [part for message in request.messages for part in message["content"] if isinstance(part, dict)]
    return json.dumps([part for part in parts if part["type"] == "tool_result"])


async def test_a_session_recalls_and_stores_and_the_next_one_knows(claude_folder, hosting, standing, tenant):
    """Scenario: CC instance receives memory context
    Scenario: Session completion triggers episode write
    Scenario: CC instance calls memory_recall mid-session
    """
    script = [
        uses("mcp__butler__memory_recall", {"topic": "what the user drinks"}),
        uses("mcp__butler__memory_store_fact", FACT),
        WELL,
    ]
    async with standing(script) as model, hosting(claude_folder("You are the butler of a quiet house.")) as at:
        await at.call_tool(
            "memory_store_fact", tenant, subject="user", predicate="cup", content="the blue cup of Meissen"
        )
        first = await at.spawn("I drink Darjeeling now. What do I drink?", at.caller(tenant))
        (fact,) = await at.rows("select * from facts where predicate = 'drinks'", tenant)
        row, (episode,) = await at.session(tenant), await at.episodes(tenant)
        requests = list(model.asked)
        await at.spawn("Which tea does the user drink?", at.caller(tenant))
    system = requests[0].system
    assert 0 <= system.index("You are the butler of a quiet house.") < system.index("# Memory Context")
    assert system.index("# Memory Context") < system.index("the blue cup of Meissen")
    assert FACT["content"] not in system
    assert "the blue cup of Meissen" in tool_results(requests[1])
    assert '"is_error": true' not in tool_results(requests[2])
    assert (fact["content"], fact["tenant_id"], fact["source_butler"]) == (
        FACT["content"],
        tenant,
        at.server.config.name,
    )
    assert fact["metadata"]["session_id"] == str(first.session_id)
    assert (row["status"], row["runtime"], row["answer"]) == ("succeeded", "claude", "Very well, I shall remember.")
    assert row["usage"] == {"input_tokens": 3 * (23 + 2 + 3), "output_tokens": 3 * 5}
    assert (episode["session_id"], episode["butler"]) == (first.session_id, at.server.config.name)
    assert episode["metadata"] == {"outcome": "succeeded", "trigger_source": "person"}
    assert episode["content"].splitlines() == [
        "Asked: I drink Darjeeling now. What do I drink?",
        "Done: called memory_recall, memory_store_fact.",
        "Result: Very well, I shall remember.",
    ]
    assert FACT["content"] in model.asked[len(requests)].system


async def test_a_session_whose_model_refuses_is_remembered_as_failed(claude_folder, hosting, standing, tenant):
    place = claude_folder("Be kind.")
    async with standing([refuses(400, "invalid_request_error", "no such tea")]), hosting(place) as at:
        with pytest.raises(SessionFailed):
            await at.spawn("Which tea?", at.caller(tenant))
        row, (episode,) = await at.session(tenant), await at.episodes(tenant)
    assert (row["status"], episode["session_id"]) == ("failed", row["id"])
    assert episode["metadata"]["outcome"] == "failed"
    assert "no such tea" in row["error"]
    assert "Failed: " in episode["content"]


async def test_the_cli_has_no_memory_where_the_butler_has_none(folder, cli, hosting, standing, tenant):
    """Scenario: Butler without memory module runs normally"""
    place = folder(f'[butler.runtime]\ncommand = ["{cli}"]\n', memory=False)
    async with standing([WELL]) as model, hosting(place) as at:
        assert (await at.spawn("Which tea?", at.caller(tenant))).text == "Very well, I shall remember."
    (requests,) = model.asked
    assert "# Memory Context" not in requests.system
    assert not [name for name in requests.tools if "memory_" in name]
