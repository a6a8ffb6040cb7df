"""Episodes from the hooks of each agent: of a turn or a session, once, without what was recalled."""

import asyncio
import json
import os
import subprocess
import sys
import time
from uuid import uuid4

import pytest

from butlers.agents import AGENTS
from butlers.hooks.delivery import accept_event, deliver
from butlers.hooks.outbox import Outbox
from cli.conftest import write_butler

from .transcript_samples import ANSWER, FACT, PROMPTS, SAMPLES

AGENTS_WITH_HOOKS = [name for name, agent in AGENTS.items() if agent.hooks]
each_agent = pytest.mark.parametrize("name", AGENTS_WITH_HOOKS)
TOLD = "You drink [recalled]. I wrote it on the list."


def turn_event(name, path, session, **more):
    """The event of a turn's end as this agent sends it."""
    entries = SAMPLES[AGENTS[name].transcript]
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    common = {"session_id": session, "cwd": "/projects/tea", "transcript_path": str(path)}
    own = {
        "codex": {"turn_id": "t1", "last_assistant_message": ANSWER},
        "gemini": {"prompt": PROMPTS[1], "prompt_response": ANSWER},
        "cursor": {"conversation_id": session, "generation_id": "g1", "workspace_roots": ["/projects/tea"]},
        "opencode": {"turn_id": "msg_1", "told": f"# Memory Context\n- {FACT}", "messages": entries},
    }
    event = {**common, **own.get(name, {}), **more}
    if name == "cursor":
        del event["session_id"], event["cwd"]
    return json.dumps({key: value for key, value in event.items() if name != "opencode" or key != "transcript_path"})


@each_agent
async def test_a_turn_is_an_episode_once_without_what_was_recalled(
    shell, butler, episodes, store_fact, tmp_path, name
):
    await store_fact(FACT)
    session = f"ses_{uuid4().hex}"
    event = turn_event(name, tmp_path / "talk.jsonl", session)
    for _ in range(2):
        done = shell("hook", "turn-end", butler, "--for", name, "--wait", stdin=event)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (episode,) = await episodes()
    assert episode["content"].splitlines() == [
        f"Asked: {PROMPTS[1]}",
        "Done: answered without calling tools.",
        f"Result: {TOLD}",
    ]
    assert episode["metadata"]["trigger_source"] == name


async def test_the_turns_of_a_session_are_episodes_of_one_session(shell, butler, episodes, tmp_path):
    session = f"ses_{uuid4().hex}"
    for turn in ("t1", "t2"):
        event = turn_event("codex", tmp_path / "talk.jsonl", session, turn_id=turn)
        shell("hook", "turn-end", butler, "--for", "codex", "--wait", stdin=event)
    first, second = await episodes()
    assert first["session_id"] == second["session_id"]


async def test_an_editor_that_also_runs_the_hooks_of_claude_code_keeps_its_session_once(
    shell, butler, episodes, tmp_path
):
    """Cursor can run the hooks of Claude Code: each turn is kept by its own, and the session not once more."""
    event = turn_event("cursor", tmp_path / "talk.jsonl", f"ses_{uuid4().hex}")
    for hook, name in (("turn-end", "cursor"), ("session-end", "claude-code")):
        done = shell("hook", hook, butler, "--for", name, "--wait", stdin=event)
        assert (done.returncode, done.stderr) == (0, "")
    (episode,) = await episodes()
    assert episode["metadata"]["trigger_source"] == "cursor"


@pytest.mark.parametrize("fields", [{}, {"session_id": "x" * 5_000, "turn_id": "y" * 5_000}])
async def test_a_turn_without_ids_or_with_strange_ones_is_kept(shell, butler, episodes, fields):
    event = {"prompt": "Which tea?", "last_assistant_message": "Green.", **fields}
    for _ in range(2):
        done = shell("hook", "turn-end", butler, "--for", "vscode", "--wait", stdin=json.dumps(event))
        assert (done.returncode, done.stderr) == (0, "")
    (episode,) = await episodes()
    assert episode["content"].startswith("Asked: Which tea?")


async def test_a_turn_in_which_nothing_was_asked_leaves_nothing(shell, butler, episodes):
    event = json.dumps({"session_id": "s", "last_assistant_message": "Hello."})
    done = shell("hook", "turn-end", butler, "--for", "codex", "--wait", stdin=event)
    assert (done.returncode, done.stderr) == (0, "")
    assert await episodes() == []


def test_an_unknown_agent_is_one_line(shell, butler):
    done = shell("hook", "turn-end", butler, "--for", "vim", stdin="{}")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "butlers: the session continues without memory: vim is not a supported agent\n"


def context_in(name, output):
    """Return the memories in what the hook of this agent prints."""
    if name == "opencode":
        return output
    answer = json.loads(output)
    return answer["additional_context"] if name == "cursor" else answer["hookSpecificOutput"]["additionalContext"]


@each_agent
async def test_a_session_is_told_its_memories_in_the_words_of_its_agent(shell, butler, store_fact, name):
    await store_fact(FACT)
    event = json.dumps({"session_id": str(uuid4()), "cwd": "/projects/tea", "source": "startup"})
    done = shell("hook", "session-start", butler, "--for", name, stdin=event)
    context = context_in(name, done.stdout)
    assert context.startswith("# Memory Context\n")
    assert f"- [user] [favourite_tea]: {FACT}" in context
    assert ("memory_recall" in context) == (name == "codex")
    again = shell("hook", "session-start", butler, "--for", name, stdin=event)
    assert (again.returncode, again.stdout) == (0, ""), "a second hook of the same start says nothing"


async def test_a_session_of_an_agent_has_a_receipt_of_what_its_hook_told(shell, butler, store_fact):
    fact = await store_fact(FACT)
    session = str(uuid4())
    event = json.dumps({"session_id": session, "cwd": "/projects/tea", "source": "startup"})
    for name in ("codex", "codex"):
        shell("hook", "session-start", butler, "--for", name, stdin=event)
    shown = json.loads(shell("memory", "receipts", butler, session, "--json").stdout)
    (receipt,) = shown["receipts"]
    assert (receipt["source"], receipt["agent"], receipt["told"]) == ("context", "codex", 1)
    assert receipt["lines"][0]["memory_id"] == fact["id"]
    told = json.loads(shell("memory", "told", butler, "fact", fact["id"], "--json").stdout)
    assert [each["session_id"] for each in told["told"]] == [session]
    assert "1 told, 0 left out" in shell("memory", "receipts", butler, session).stdout
    assert "1 sessions were told it." in shell("memory", "told", butler, "fact", fact["id"]).stdout


def test_codex_is_told_where_the_tools_are_although_nothing_is_known(shell, butler):
    event = json.dumps({"session_id": str(uuid4()), "source": "startup"})
    done = shell("hook", "session-start", butler, "--for", "codex", stdin=event)
    context = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"]
    assert f"the MCP server {butler.name}" in context
    assert "# Memory Context" not in context


# The outbox


def run_hook(butler, event, home, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "hook", "turn-end", str(butler), "--for", "codex"],
        env={**os.environ, "BUTLERS_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def event_of(session, turn):
    return json.dumps(
        {"session_id": session, "turn_id": turn, "prompt": f"Prompt {turn}", "last_assistant_message": "Done."}
    )


async def wait_for(read, count):
    for _ in range(100):
        rows = await read()
        if len(rows) >= count:
            return rows
        await asyncio.sleep(1)
    return rows


def test_row_57_a_hook_does_not_wait_for_a_database_that_does_not_answer(butler, home, cluster):
    with (butler / "butler.toml").open("a") as file:
        # An address that swallows every packet.
        file.write('[butler.database]\nurl = "postgresql://me@192.0.2.1:5432/none"\n')
    started = time.monotonic()
    done = run_hook(butler, "", home).communicate(event_of("s", "t"), timeout=60)
    assert done == ("", "")
    assert time.monotonic() - started < 10, "including the start of the program on a busy machine"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_row_57_fifty_hooks_at_once_and_twice_keep_each_turn_once(butler, home, episodes, shell):
    """The first of them is killed at once."""
    session = str(uuid4())
    turns = [f"t{number}" for number in range(50)]
    processes = [run_hook(butler, "", home) for _ in turns * 2]
    killed = processes[0]
    killed.kill()
    for process, turn in zip(processes[1:], (turns * 2)[1:], strict=True):
        assert process.stdin
        process.stdin.write(event_of(session, turn))
        process.stdin.close()
    for process in processes:
        await asyncio.to_thread(process.wait, 200)
        for stream in (process.stdout, process.stderr, process.stdin):
            if stream and not stream.closed:
                stream.close()
    kept = await wait_for(episodes, len(turns))
    assert sorted(row["content"].split("\n")[0] for row in kept) == sorted(f"Asked: Prompt {turn}" for turn in turns)


def failing(butler):
    text = (butler / "butler.toml").read_text()
    (butler / "butler.toml").write_text(text + '[butler.database]\nurl = "postgresql://me@127.0.0.1:1/none"\n')
    return text


async def test_row_57_an_event_waits_until_its_butler_is_there_again(butler, environment, tmp_path, episodes):
    outbox = Outbox(tmp_path, butler)
    written = failing(butler)
    for turn in ("t1", "t2"):
        accept_event(outbox, "turn-end", event_of("s", turn), AGENTS["codex"])
    report = await deliver(outbox, environment)
    assert (report.stored, report.waiting, len(report.errors)) == (0, 2, 1)
    assert outbox.last_error == report.errors[0]
    (butler / "butler.toml").write_text(written)
    report = await deliver(outbox, environment)
    assert (report.stored, report.waiting, report.errors, outbox.last_error) == (2, 0, [], "")
    assert len(await episodes()) == 2


async def test_one_event_that_can_not_be_read_keeps_no_other_from_being_stored(
    butler, environment, tmp_path, episodes
):
    outbox = Outbox(tmp_path, butler)
    outbox.add({"hook": "turn-end", "agent": "codex", "event": {"no such": "field"}})
    outbox.add({"hook": "turn-end", "agent": "an agent of a later version", "event": {}})
    (outbox.folder / "00000000000000000000-damaged.json").write_text("{")
    accept_event(outbox, "turn-end", event_of("s", "t1"), AGENTS["codex"])
    report = await deliver(outbox, environment)
    assert (report.stored, report.left_out, report.waiting, report.errors) == (1, 2, 1, ["TypeError"])
    assert len(await episodes()) == 1


def test_events_that_wait_too_long_are_deleted(butler, tmp_path):
    outbox = Outbox(tmp_path, butler)
    old, new = outbox.add({}), outbox.add({})
    os.utime(old, (0, 0))
    assert outbox.waiting() == [new]
    assert not old.exists()


def test_only_one_process_delivers(butler, tmp_path):
    outbox = Outbox(tmp_path, butler)
    with outbox.lock() as first, outbox.lock() as second:
        assert (first, second) == (True, False)
    with outbox.lock() as third:
        assert third


@pytest.mark.parametrize("event", ["{}", '{"session_id": "s", "transcript_path": "/no/such", "reason": "other"}'])
def test_an_event_that_says_nothing_is_not_taken(butler, tmp_path, event):
    outbox = Outbox(tmp_path, butler)
    assert accept_event(outbox, "session-end", event, AGENTS["claude-code"]) is None
    assert outbox.waiting() == []


async def test_a_butler_that_does_not_answer_keeps_no_other_waiting(butler, environment, tmp_path, episodes):
    other = write_butler(tmp_path, "other_butler")
    with Outbox(environment.home, other).lock():
        outbox = Outbox(environment.home, butler)
        accept_event(outbox, "turn-end", event_of("s", "t1"), AGENTS["codex"])
        assert (await deliver(outbox, environment)).stored == 1


def test_the_command_delivers_what_waits(butlers, butler, home, cluster):
    with (butler / "butler.toml").open("a") as file:
        file.write('[butler.database]\nurl = "postgresql://me:hunter2@127.0.0.1:1/none"\n')
    waiting = Outbox(home, butler)
    accept_event(waiting, "turn-end", event_of("s", "t1"), AGENTS["codex"])
    failed = butlers("hook", "deliver", butler, "--json")
    assert failed.returncode == 1
    (row,) = json.loads(failed.stdout)
    assert row["waiting"] == 1
    assert "hunter2" not in failed.stdout + failed.stderr + waiting.last_error


async def test_a_turn_is_what_was_there_when_it_ended(butler, environment, tmp_path, episodes):
    """A delivery that comes late does not take the next turn for this one."""
    outbox, path = Outbox(tmp_path, butler), tmp_path / "talk.jsonl"
    entries = [json.dumps(entry) for entry in SAMPLES["codex"]]
    end = next(index for index, entry in enumerate(entries) if "milk" in entry)
    path.write_text("\n".join(entries[:end]) + "\n")
    event = {"session_id": "s", "turn_id": "t1", "transcript_path": str(path), "last_assistant_message": "Green."}
    accept_event(outbox, "turn-end", json.dumps(event), AGENTS["codex"])
    path.write_text("\n".join(entries))
    await deliver(outbox, environment)
    (episode,) = await episodes()
    assert episode["content"].splitlines() == [f"Asked: {PROMPTS[0]}", "Done: called Bash.", "Result: Green."]
