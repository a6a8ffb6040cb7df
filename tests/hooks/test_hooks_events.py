"""Events of any agent: fields under each agent's names, missing fields, and ids that are no UUIDs."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.errors import InvalidInput
from butlers.hooks.event import HookEvent, parse_event
from butlers.hooks.once import claim_keeping, claim_start

SESSION = "01a1edfb-1cb8-7063-ae6a-122929a903bb"
EVENTS = {
    "codex": {
        "session_id": SESSION,
        "turn_id": "t1",
        "transcript_path": "/t.jsonl",
        "cwd": "/projects/tea",
        "hook_event_name": "Stop",
        "last_assistant_message": "green",
    },
    "gemini": {
        "session_id": SESSION,
        "transcript_path": "/t.jsonl",
        "cwd": "/projects/tea",
        "prompt": "which",
        "prompt_response": "green",
    },
    "vscode": {"timestamp": "2026-11-18T09:28:02Z", "hook_event_name": "Stop", "stop_hook_active": False},
    "cursor": {
        "conversation_id": "c1",
        "generation_id": "g1",
        "workspace_roots": ["/projects/tea", "/other"],
        "status": "completed",
        "transcript_path": None,
    },
}
READ = {
    "codex": HookEvent(SESSION, "/projects/tea", "/t.jsonl", turn="t1", answer="green"),
    "gemini": HookEvent(SESSION, "/projects/tea", "/t.jsonl", prompt="which", answer="green"),
    "vscode": HookEvent(),
    "cursor": HookEvent("c1", "/projects/tea", turn="g1", reason="completed"),
}


@pytest.mark.parametrize("agent", EVENTS)
def test_the_fields_of_each_agent_are_found(agent):
    assert parse_event(json.dumps(EVENTS[agent])) == READ[agent]


values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=2)
names = [
    "session_id",
    "conversation_id",
    "cwd",
    "workspace_roots",
    "transcript_path",
    "turn_id",
    "prompt",
    "messages",
]


@given(st.dictionaries(st.sampled_from(names), values))
def test_a_field_of_any_type_is_read_or_left_out(fields):
    event = parse_event(json.dumps(fields))
    assert isinstance(event.session_uuid("codex"), UUID)
    assert isinstance(event.project_name, str)
    assert HookEvent(**json.loads(json.dumps(event.as_dict()))) == event


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "null", "[" * 100_000, '{"session_id": "x'])
def test_what_is_no_event_is_refused(text):
    with pytest.raises(InvalidInput):
        parse_event(text)


def test_an_event_that_is_too_long_is_refused():
    with pytest.raises(InvalidInput):
        parse_event(json.dumps({"prompt": "x" * 17 * 1024 * 1024}))


def test_an_id_that_is_no_uuid_becomes_the_same_uuid_each_time_and_another_for_another_agent():
    event = HookEvent(session="ses_e199a71e1ffefdM8gp5ytG2Ruo")
    assert event.session_uuid("opencode") == event.session_uuid("opencode")
    assert event.session_uuid("opencode") != event.session_uuid("cursor")
    assert HookEvent(session=SESSION).session_uuid("codex") == UUID(SESSION)


# The guard


def test_the_first_of_two_hooks_of_one_start_tells_the_memories(tmp_path):
    claims = [claim_start(tmp_path, "/butler", SESSION, "startup") for _ in range(3)]
    assert claims == [True, False, False]


@pytest.mark.parametrize(
    "other", [("/other", SESSION, "startup"), ("/butler", "s2", "startup"), ("/butler", SESSION, "resume")]
)
def test_another_butler_session_or_way_to_start_is_another_start(tmp_path, other):
    assert claim_start(tmp_path, "/butler", SESSION, "startup")
    assert claim_start(tmp_path, *other)


def test_the_agent_whose_hook_comes_first_keeps_a_session(tmp_path):
    agents = ["cursor", "claude-code", "cursor", "claude-code"]
    assert [claim_keeping(tmp_path, agent, "/butler", SESSION) for agent in agents] == [True, False, True, False]
    assert claim_keeping(tmp_path, "claude-code", "/butler", "another session")
    assert claim_keeping(tmp_path, "claude-code", "/other", SESSION)


def test_a_start_long_ago_is_another_start(tmp_path):
    claim_start(tmp_path, "a")
    (claim,) = (tmp_path / "hooks" / "starts").iterdir()
    claim.write_text(str(float(claim.read_text()) - 60))
    assert claim_start(tmp_path, "a")


def test_a_folder_that_can_not_be_used_is_no_obstacle(tmp_path):
    (tmp_path / "hooks").write_text("a file")
    assert claim_start(tmp_path, "a")


def test_what_hooks_keep_is_for_their_user_alone(tmp_path):
    claim_start(tmp_path, "a")
    assert (tmp_path / "hooks").stat().st_mode & 0o777 == 0o700
