"""Runtimes that run a program: answers, failures, timeouts, left-over processes, and the session record."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from butlers.caller import Caller
from butlers.config import RuntimeConfig
from butlers.contract import Usage
from butlers.errors import SessionFailed, TimedOut, Unavailable
from butlers.host import runtimes
from butlers.host.runtimes.claude import ClaudeRuntime
from butlers.host.runtimes.command import CommandRuntime
from butlers.host.runtimes.runtime import McpAccess, RuntimeResult, SessionTask
from butlers.host.spawner import SessionSpawner
from database.butler_processes import Processes, is_alive, wait_until
from host.session_fixtures import session_processes

MEBIBYTE = 1 << 20
LONG = "head -c 10485760 /dev/zero | tr '\\0' x"
# Processes in the program's group that ignore SIGTERM.
GRANDCHILDREN = """
(trap '' TERM; sleep 600) &
(trap '' TERM; sh -c 'sleep 600; true' & sleep 600) &
touch started
"""


@pytest.fixture
def program(tmp_path):
    """Write a shell script and return its path."""

    def write(text, name="think"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def command(program, tmp_path):
    """Return a command runtime with a shell script."""
    return lambda text, *arguments: CommandRuntime([program(text), *arguments], tmp_path)


@pytest.fixture
def claude(program):
    """Return the Claude runtime with a shell script in place of the CLI."""
    return lambda text: ClaudeRuntime([program(text)])


def session_task(prompt="How are you?", seconds=30.0, **more):
    return SessionTask(uuid4(), prompt, seconds, **more)


async def run_within(seconds, work):
    """Await the work, and fail after `seconds` instead of waiting forever."""
    return await asyncio.wait_for(work, seconds)


def assert_processes_end(session, seconds=4.0):
    wait_until(
        lambda: not session_processes(session),
        f"nothing of the session to be left: {session_processes(session)}",
        seconds,
    )


async def wait_for_file(path: Path, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} was not created"
        await asyncio.sleep(0.02)


# Input and output


async def test_what_a_program_writes_is_the_answer(command):
    outcome = await command("echo 'Very well, thank you.'; echo 'a note' >&2").run(session_task())
    assert outcome == RuntimeResult("Very well, thank you.\n", None, None)


async def test_a_program_is_told_the_system_prompt_a_blank_line_and_the_prompt(command):
    runtime, prompt = command("cat"), "\N{SLICE OF PIZZA} für zwei?\nJa."
    assert (
        await runtime.run(session_task(prompt, system_prompt="You are a butler."))
    ).text == f"You are a butler.\n\n{prompt}"
    assert (await runtime.run(session_task(prompt))).text == prompt


async def test_a_program_gets_its_arguments_and_runs_in_the_butlers_folder(command, tmp_path):
    outcome = await command('pwd -P; echo "$# $1 $2"', "--fast", "a b").run(session_task())
    assert outcome.text.splitlines() == [str(tmp_path.resolve()), "2 --fast a b"]


async def test_a_relative_path_is_looked_up_in_the_butlers_folder(program, tmp_path, monkeypatch):
    program("echo from the folder")
    config = RuntimeConfig(type="command", command=["./think", "--fast"])
    monkeypatch.chdir(tmp_path.parent)
    made = [runtimes.make_runtime(config, folder) for folder in (tmp_path, Path(tmp_path.name))]
    monkeypatch.chdir("/")
    for runtime in made:
        runtime.check()
        assert runtime.name == "command"
        assert (await runtime.run(session_task())).text == "from the folder\n"


async def test_a_relative_path_of_the_claude_cli_is_looked_up_in_the_butlers_folder_too(program, tmp_path):
    program("""cat > /dev/null; echo '{"result": "hello"}'""")
    runtime = runtimes.make_runtime(RuntimeConfig(command=["./think"]), tmp_path)
    assert runtime.name == "claude"
    assert (await runtime.run(session_task())).text == "hello"


async def test_bytes_that_are_no_text_are_replaced(command):
    assert (await command(r"printf 'a\377b'").run(session_task())).text == "a\N{REPLACEMENT CHARACTER}b"


async def test_a_program_sees_the_environment_without_the_butlers_own_variables(command, monkeypatch):
    monkeypatch.setenv("BUTLERS_DATABASE_URL", "postgresql://ada:secret@db/butler")
    monkeypatch.setenv("BUTLERS_MCP_CONFIG", "/of/another/session")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("COLOUR", "blue")
    task = session_task()
    seen = dict(line.split("=", 1) for line in (await command("env").run(task)).text.splitlines() if "=" in line)
    assert seen["COLOUR"] == "blue"
    assert seen["BUTLERS_SESSION_ID"] == str(task.session_id)
    assert [name for name in seen if name.startswith(("BUTLERS_", "CLAUDECODE"))] == ["BUTLERS_SESSION_ID"]


async def test_the_claude_cli_carries_the_id_by_which_its_processes_are_found(claude):
    task = session_task()
    script = """cat > /dev/null; printf '{"result": "%s"}' "$BUTLERS_SESSION_ID" """
    outcome = await claude(script).run(task)
    assert outcome.text == str(task.session_id)


async def test_a_program_finds_out_how_to_reach_the_butlers_tools(command):
    access = McpAccess("http://127.0.0.1:1/mcp", {"Authorization": "Bearer hush"})
    output = (
        await command('cat "$BUTLERS_MCP_CONFIG"; echo; echo "$BUTLERS_MCP_CONFIG"').run(session_task(mcp=access))
    ).text
    config, path = output.splitlines()
    server = {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer hush"}}
    assert json.loads(config) == {"mcpServers": {"butler": server}}
    assert not Path(path).parent.exists(), "the file outlives the session"
    assert "hush" not in repr(access)


async def test_nobody_else_on_the_machine_can_read_what_a_session_is_given(command):
    access = McpAccess("http://127.0.0.1:1/mcp", {"Authorization": "Bearer hush"})
    script = """ls -ld "$(dirname "$BUTLERS_MCP_CONFIG")"; ps -ww -o args= -p $PPID; ps -ww -o args= -p $$"""
    output = (await command(script).run(session_task("hush", system_prompt="hush", mcp=access))).text
    assert output.startswith("drwx------")
    assert output.count("think") == 2
    assert "hush" not in output


# Failures


@pytest.mark.parametrize("make", [ClaudeRuntime, lambda command: CommandRuntime(command, Path("/"))])
@pytest.mark.parametrize("name", ["no-such-program-anywhere", "/no/such/program"])
async def test_a_missing_program_is_named(make, name):
    with pytest.raises(Unavailable, match=f"{name} is not installed") as checked:
        make([name]).check()
    with pytest.raises(Unavailable, match=f"{name} is not installed") as ran:
        await make([name]).run(session_task())
    # The program was not started, so this is not SessionFailed.
    assert not isinstance(checked.value, SessionFailed)
    assert not isinstance(ran.value, SessionFailed)


async def test_a_file_that_may_not_be_run_counts_as_missing(tmp_path):
    (tmp_path / "think").write_text("#!/bin/sh\n")
    with pytest.raises(Unavailable, match="think is not installed"):
        await CommandRuntime([str(tmp_path / "think")], tmp_path).run(session_task())


async def test_a_program_that_cant_be_started_is_a_failure_that_says_why(tmp_path):
    path = tmp_path / "think"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(SessionFailed, match=r"exit code 127: .*No such file or directory"):
        await CommandRuntime([str(path)], tmp_path).run(session_task())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo half; echo first >&2; echo 'the last straw' >&2; echo >&2; exit 3", "3: the last straw"),
        ("echo half; exit 4", "4"),
        ("echo half; kill -9 $$", "137"),
    ],
)
async def test_a_bad_end_is_told_by_its_code_and_the_last_complaint(command, text, expected):
    with pytest.raises(SessionFailed) as failed:
        await command(text).run(session_task())
    assert failed.value.message.endswith(f"think ended with exit code {expected}")


async def test_a_long_complaint_is_cut(command):
    with pytest.raises(SessionFailed) as failed:
        await command("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1").run(session_task())
    assert len(str(failed.value)) < 1000


async def test_a_program_need_not_read_a_long_prompt(command):
    outcome = await run_within(20, command("echo I know already").run(session_task("x" * 5 * MEBIBYTE)))
    assert outcome.text == "I know already\n"


async def test_a_long_prompt_arrives_whole(command):
    outcome = await run_within(20, command("wc -c").run(session_task("x" * 5 * MEBIBYTE)))
    assert int(outcome.text) == 5 * MEBIBYTE


async def test_a_long_prompt_does_not_hold_up_the_time_limit(command):
    with pytest.raises(TimedOut):
        await run_within(20, command("exec sleep 600").run(session_task("x" * 5 * MEBIBYTE, seconds=0.5)))


async def test_a_long_answer_is_taken_whole(command):
    outcome = await run_within(20, command("head -c 8388608 /dev/zero | tr '\\0' x").run(session_task()))
    assert len(outcome.text) == 8 * MEBIBYTE


@pytest.mark.parametrize("text", [LONG, f"{LONG}; exec sleep 600", "trap '' TERM; exec yes"])
async def test_an_answer_that_is_too_long_is_none_and_the_program_is_ended(command, text):
    task = session_task(seconds=8)
    with pytest.raises(SessionFailed, match="answered more than 8 MiB"):
        await run_within(12, command(text).run(task))
    assert_processes_end(task.session_id)


# Left-over processes


@pytest.mark.parametrize("first", ["", "trap '' TERM"], ids=["heeds SIGTERM", "ignores SIGTERM"])
async def test_a_program_over_its_time_ends_with_all_it_started(command, tmp_path, first):
    task = session_task(seconds=1)
    with pytest.raises(TimedOut, match="the session took longer than 1 s"):
        await run_within(20, command(f"{first}\n{GRANDCHILDREN}\nsleep 600").run(task))
    assert (tmp_path / "started").exists()
    assert_processes_end(task.session_id)


async def test_a_program_that_goes_on_talking_after_its_time_is_ended_as_well(command):
    """Unread output must not hide that the program has ended."""
    task = session_task(seconds=1)
    with pytest.raises(TimedOut):
        await run_within(
            20, command("trap '' TERM; while :; do echo many words; echo many complaints >&2; done").run(task)
        )
    assert_processes_end(task.session_id)


async def test_a_program_may_tidy_up_when_its_time_is_over(command, tmp_path):
    text = "trap 'sleep 0.3; touch tidied; exit 0' TERM; touch started; while :; do sleep 0.05; done"
    with pytest.raises(TimedOut):
        await run_within(20, command(text).run(session_task(seconds=1)))
    assert (tmp_path / "tidied").exists()


async def test_a_cancelled_session_ends_with_all_it_started(command, tmp_path):
    task = session_task(seconds=600)
    running = asyncio.ensure_future(command(f"trap '' TERM\n{GRANDCHILDREN}\nsleep 600").run(task))
    await wait_for_file(tmp_path / "started")
    assert len(session_processes(task.session_id)) >= 5
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_within(20, running)
    assert_processes_end(task.session_id)


async def test_a_session_that_is_cancelled_at_once_leaves_nothing(command):
    before = psutil.Process().num_fds()
    for pause in (0.0, 0.001, 0.01, 0.05):
        task = session_task(seconds=600)
        running = asyncio.ensure_future(command("exec sleep 600").run(task))
        await asyncio.sleep(pause)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run_within(20, running)
        assert_processes_end(task.session_id)
    assert psutil.Process().num_fds() <= before


async def test_what_a_program_leaves_in_the_background_ends_with_it_and_holds_nothing_up(command, tmp_path):
    task, began = session_task(), time.monotonic()
    outcome = await run_within(20, command(f"{GRANDCHILDREN}\necho done").run(task))
    assert outcome.text == "done\n"
    assert time.monotonic() - began < 5
    assert_processes_end(task.session_id)


async def run_with_escaped_child(command, tmp_path, then, seconds):
    """Run a program whose child leaves its process group and keeps its stdout open."""
    task = session_task(seconds=seconds)
    text = "import os, time\nos.setsid()\nopen('left', 'w').write(str(os.getpid()))\ntime.sleep(20)\n"
    (tmp_path / "leave.py").write_text(text)
    script = f"python3 leave.py &\nwhile [ ! -s left ]; do sleep 0.02; done\n{then}"
    try:
        return await run_within(12, command(script).run(task))
    finally:
        child = int((tmp_path / "left").read_text())
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


async def test_a_child_that_left_the_group_does_not_hold_up_the_answer(command, tmp_path):
    began = time.monotonic()
    outcome = await run_with_escaped_child(command, tmp_path, "echo done", seconds=8)
    assert outcome.text == "done\n"
    assert time.monotonic() - began < 6


async def test_a_child_that_left_the_group_does_not_hold_up_the_time_limit(command, tmp_path):
    with pytest.raises(TimedOut):
        await run_with_escaped_child(command, tmp_path, "sleep 600", seconds=1)


RUN_SESSION_PROGRAM = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
from butlers.host.runtimes.command import CommandRuntime
from butlers.host.runtimes.runtime import SessionTask

program, session = Path(sys.argv[1]), UUID(sys.argv[2])
asyncio.run(CommandRuntime([str(program)], program.parent).run(SessionTask(session, "Go on.", 600)))
"""


@pytest.fixture
def processes(tmp_path):
    """Start programs as processes, and end them after the test."""
    logs = tmp_path / "logs"
    logs.mkdir()
    started = Processes(logs)
    yield started
    started.end()


@pytest.mark.parametrize("first", ["", "trap '' TERM"], ids=["heeds SIGTERM", "ignores SIGTERM"])
async def test_a_session_whose_butler_is_killed_ends_with_all_it_started(program, processes, tmp_path, first):
    session = uuid4()
    script = program(f"{first}\n{GRANDCHILDREN}\nsleep 600")
    butler = processes.python("-c", RUN_SESSION_PROGRAM, script, str(session), TMPDIR=str(tmp_path))
    await wait_for_file(tmp_path / "started")
    assert len(session_processes(session)) >= 5
    butler.end(signal.SIGKILL)
    assert_processes_end(session, 6)


async def test_many_sessions_at_once_leave_neither_files_nor_processes(program, tmp_path):
    runtime = CommandRuntime([program("echo $BUTLERS_SESSION_ID")], tmp_path)
    failing = CommandRuntime([program("cat > /dev/null; exit 1", "fail")], tmp_path)
    await runtime.run(session_task())
    me, threads = psutil.Process(), psutil.Process().num_threads()
    files, children = me.num_fds(), len(me.children(recursive=True))
    tasks = [session_task("x" * 100_000) for _ in range(20)]
    work = [(failing if number % 4 == 3 else runtime).run(task) for number, task in enumerate(tasks)]
    ended = await run_within(60, asyncio.gather(*work, return_exceptions=True))
    for number, (task, each) in enumerate(zip(tasks, ended, strict=True)):
        if number % 4 == 3:
            assert isinstance(each, SessionFailed)
        else:
            assert each.text == f"{task.session_id}\n"
    wait_until(lambda: me.num_fds() <= files, f"the files to be closed: {me.num_fds()} of {files}", 5)
    wait_until(lambda: len(me.children(recursive=True)) <= children, "the processes to be gone", 5)
    wait_until(lambda: me.num_threads() <= threads + 1, "the threads to be gone", 5)


# The JSON of the Claude CLI


def cli_script(code=0, **output):
    """Return a script that answers like the CLI."""
    return f"cat > /dev/null\ncat <<'END'\n{json.dumps(output)}\nEND\nexit {code}"


async def test_the_result_of_the_claude_cli_is_the_answer(claude):
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 11,
        "output_tokens": 13,
        "service_tier": "standard",
    }
    text = cli_script(type="result", is_error=False, result="Very well.", session_id="s-1", usage=usage)
    assert await claude(text).run(session_task()) == RuntimeResult("Very well.", "s-1", Usage(23, 13))


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, None),
        ("a lot", None),
        ({}, Usage(0, 0)),
        ({"input_tokens": -5, "output_tokens": "7"}, Usage(0, 0)),
        ({"input_tokens": None, "cache_read_input_tokens": 2.5, "output_tokens": 3}, Usage(0, 3)),
    ],
)
async def test_a_usage_that_makes_no_sense_counts_as_nothing(claude, usage, counted):
    outcome = await claude(cli_script(result="Well.", session_id=17, usage=usage)).run(session_task())
    assert outcome == RuntimeResult("Well.", None, counted)


async def test_the_claude_cli_is_told_nothing_in_arguments_that_others_could_read(program):
    path = program("""printf '%s\\n' "$@" > "$0.arguments"; cat > "$0.stdin"; pwd -P > "$0.folder"
    while [ $# -gt 0 ]; do [ "$1" = --append-system-prompt-file ] && cp "$2" "$0.system"; shift; done
    ls > "$0.files"; echo '{"result": ""}'""")
    access = McpAccess("http://127.0.0.1:1/mcp", {"Authorization": "Bearer hush"})
    task = session_task("A private question", system_prompt="A private instruction", mcp=access)
    await ClaudeRuntime([path, "--model", "sonnet"]).run(task)
    arguments = Path(f"{path}.arguments").read_text().split("\n")
    assert arguments[:2] == ["--model", "sonnet"]
    assert arguments[arguments.index("--session-id") + 1] == str(task.session_id)
    assert not any(word in " ".join(arguments) for word in ("private", "hush"))
    assert Path(f"{path}.stdin").read_text().strip() == "A private question"
    assert Path(f"{path}.system").read_text() == "A private instruction"
    assert Path(f"{path}.files").read_text().split() == ["mcp.json", "system.md"]
    assert not Path(Path(f"{path}.folder").read_text().strip()).exists()


@pytest.mark.parametrize(
    "output",
    ["", "garbage", "[]", "null", '"result"', "{", '{"result": 7}', '{"type": "result"}', "[" * 100_000],
)
async def test_an_answer_that_is_not_the_clis_json_is_a_failure(claude, output):
    with pytest.raises(SessionFailed, match="did not answer with a result in JSON") as failed:
        await claude(f"cat > /dev/null\ncat <<'END'\n{output}\nEND").run(session_task())
    assert len(str(failed.value)) < 500


async def test_a_cli_that_fails_without_json_is_told_by_its_complaint(claude):
    with pytest.raises(SessionFailed, match="ended with exit code 1: error: unknown option"):
        await claude("echo Usage; echo 'error: unknown option' >&2; exit 1").run(session_task())


@pytest.mark.parametrize(("code", "is_error"), [(0, True), (1, False), (1, True)])
async def test_an_error_the_cli_tells_of_is_a_failure_in_its_words(claude, code, is_error):
    text = cli_script(code, type="result", is_error=is_error, result="Invalid API key", session_id="s-1")
    with pytest.raises(SessionFailed) as failed:
        await claude(text).run(session_task())
    assert failed.value.message.endswith("think failed: Invalid API key")


# The session record


@pytest.fixture
async def database(folder, running):
    async with running(folder(memory=False, probe=False)) as server:
        yield server.database


@pytest.fixture
def caller():
    """A caller in a new tenant."""
    return Caller(tenant=f"t-{uuid4().hex}", butler="general", actor="ada", request_id="r-1")


async def fetch_session(database, caller):
    """Return the only session of the tenant."""
    async with database.transaction(caller) as tx:
        (row,) = await tx.fetch("select * from sessions where tenant_id = $1", caller.tenant)
    return row


async def test_a_session_that_succeeds_is_recorded_with_what_it_took(database, caller, claude):
    usage = {"input_tokens": 5, "output_tokens": 13}
    spawner = SessionSpawner(claude(cli_script(result="Well.", session_id="s-1", usage=usage)), database, 30)
    spawner.check()
    answered = await spawner.spawn(caller, "How are you?", trigger_source="person")
    row = await fetch_session(database, caller)
    assert (answered.text, answered.usage) == ("Well.", Usage(5, 13))
    assert row["id"] == answered.session_id
    assert (row["status"], row["runtime"], row["runtime_session_id"]) == ("succeeded", "claude", "s-1")
    assert (row["trigger_source"], row["prompt"], row["internal"]) == ("person", "How are you?", False)
    assert (row["butler"], row["actor"], row["request_id"]) == ("general", "ada", "r-1")
    assert row["usage"] == {"input_tokens": 5, "output_tokens": 13}
    assert row["error"] is None
    assert row["finished_at"] >= row["started_at"]


async def test_a_runtime_that_does_not_count_tokens_is_recorded_without(database, caller, command):
    answered = await SessionSpawner(command("echo well"), database, 30).spawn(
        caller, "How?", trigger_source="schedule:x"
    )
    row = await fetch_session(database, caller)
    assert answered.usage is None
    assert (row["status"], row["runtime"], row["trigger_source"]) == ("succeeded", "command", "schedule:x")
    assert (row["usage"], row["runtime_session_id"]) == ({}, None)


async def test_the_prompt_of_an_internal_session_is_not_kept(database, caller, command):
    spawner = SessionSpawner(command("cat"), database, 30)
    answered = await spawner.spawn(caller, "a private memory", trigger_source="job", internal=True)
    row = await fetch_session(database, caller)
    assert answered.text == "a private memory"
    assert row["internal"] is True
    assert "private" not in repr(dict(row))


@pytest.mark.parametrize(
    ("text", "fault", "status", "reason"),
    [
        ("echo 'out of tea' >&2; exit 2", SessionFailed, "failed", "exit code 2: out of tea"),
        ("exec sleep 600", TimedOut, "timed_out", "the session took longer than 0.5 s"),
    ],
)
async def test_a_session_that_comes_to_nothing_is_recorded_with_the_reason(
    database, caller, command, text, fault, status, reason
):
    with pytest.raises(fault) as failed:
        await SessionSpawner(command(text), database, 0.5).spawn(caller, "How?", trigger_source="person")
    row = await fetch_session(database, caller)
    assert row["status"] == status
    assert row["finished_at"] is not None
    assert row["error"] == failed.value.message
    assert row["error"].endswith(reason)


async def test_a_session_that_can_not_be_started_is_recorded_as_failed(database, caller):
    with pytest.raises(Unavailable, match="no-such-program"):
        await SessionSpawner(ClaudeRuntime(["no-such-program"]), database, 30).spawn(
            caller, "How?", trigger_source="person"
        )
    row = await fetch_session(database, caller)
    assert (row["status"], row["error"]) == ("failed", "the program no-such-program is not installed")


async def test_a_cancelled_session_is_recorded_as_such(database, caller, command, tmp_path):
    spawner = SessionSpawner(command("touch started; exec sleep 600"), database, 600)
    running = asyncio.ensure_future(spawner.spawn(caller, "How?", trigger_source="person"))
    await wait_for_file(tmp_path / "started")
    assert (await fetch_session(database, caller))["status"] == "running"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_within(20, running)
    row = await fetch_session(database, caller)
    assert (row["status"], row["usage"]) == ("cancelled", {})
    assert row["finished_at"] is not None
    assert_processes_end(row["id"])


class Broken:
    """A runtime that raises an unexpected error."""

    name = "broken"

    def __init__(self, error):
        self.error = error

    def check(self):
        pass

    async def run(self, task):
        raise self.error


@pytest.mark.parametrize("error", [KeyError("a private word"), ExceptionGroup("all", [OSError("a private word")])])
async def test_a_runtime_that_breaks_as_nobody_foresaw_is_a_session_that_failed(database, caller, error):
    with pytest.raises(SessionFailed, match=type(error).__name__) as failed:
        await SessionSpawner(Broken(error), database, 30).spawn(caller, "How?", trigger_source="person")
    row = await fetch_session(database, caller)
    assert (row["status"], row["error"]) == ("failed", type(error).__name__)
    assert "private" not in str(failed.value)


async def test_a_complaint_the_database_cant_keep_does_not_hide_the_failure(database, caller, command):
    """Text columns can't store NUL, and a program may write any bytes to stderr."""
    with pytest.raises(SessionFailed, match="exit code 5"):
        await SessionSpawner(command(r"printf 'bad\000byte' >&2; exit 5"), database, 30).spawn(
            caller, "How?", trigger_source="person"
        )
    assert (await fetch_session(database, caller))["status"] == "failed"


@pytest.mark.parametrize("session_id", ["a\0b", "half a pair: \ud83d"])
async def test_an_id_the_database_cant_keep_does_not_take_the_answer_away(database, caller, claude, session_id):
    runtime = claude(cli_script(result="Well.", session_id=session_id))
    answered = await SessionSpawner(runtime, database, 30).spawn(caller, "How?", trigger_source="person")
    assert answered.text == "Well."
    assert (await fetch_session(database, caller))["status"] == "succeeded"
