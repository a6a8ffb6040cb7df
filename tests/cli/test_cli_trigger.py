"""The `butlers trigger` command: one session with memory."""

import json
import os
import signal
import subprocess
import sys

import pytest

from butlers import app
from host.session_fixtures import THINK_RUNTIME, session_processes, wait_until, write_program

from .conftest import write_butler


@pytest.fixture
def thinking(tmp_path, worker, tenant):
    """Return a function that writes a butler of the shared database with a program as its runtime."""

    def write(program, extra=""):
        return write_program(
            write_butler(tmp_path, f"cli_{worker}", f'{THINK_RUNTIME}{extra}[butler.auth]\ntenant = "{tenant}"\n'),
            program,
        )

    return write


@pytest.fixture
def query(environment):
    """Return a function that runs a query in the tenant of a butler."""

    async def read(place, statement):
        async with (
            app.open_butler(app.load_configuration(place), environment) as opened,
            opened.database.transaction(opened.caller()) as tx,
        ):
            return [dict(row) for row in await tx.fetch(statement)]

    return read


async def test_a_prompt_is_answered_recorded_and_remembered(butlers, thinking, query):
    place = thinking("sed -n '$p'; echo; echo Ordered.")
    done = butlers("trigger", place, "Order tea")
    assert (done.returncode, done.stdout) == (0, "Order tea\nOrdered.\n"), done.stderr
    (session,) = await query(place, "select * from sessions")
    (episode,) = await query(place, "select * from episodes")
    assert (session["trigger_source"], session["prompt"], session["status"]) == ("cli", "Order tea", "succeeded")
    assert episode["session_id"] == session["id"]
    assert episode["metadata"] == {"outcome": "succeeded", "trigger_source": "cli"}


async def test_the_json_has_the_session_and_its_usage(butlers, thinking, query):
    answer_of_program = {
        "result": "Very well.",
        "session_id": "s-1",
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }
    place = thinking(f"cat > /dev/null; echo '{json.dumps(answer_of_program)}'")
    text = (place / "butler.toml").read_text().replace('type = "command"', 'type = "claude"')
    (place / "butler.toml").write_text(text)
    answer = json.loads(butlers("trigger", place, "How are you?", "--json").stdout)
    (session,) = await query(place, "select id from sessions")
    assert answer == {
        "session_id": str(session["id"]),
        "answer": "Very well.",
        "usage": {"input_tokens": 5, "output_tokens": 7},
    }


def test_a_session_for_another_tenant_has_the_memories_of_that_tenant(butlers, thinking, tenant):
    place, other = thinking("cat"), f"{tenant}-2"
    for whose, tea in ((tenant, "a green tea of mine"), (other, "a black tea of mine")):
        stored = butlers("memory", "store-fact", place, "user", "tea", tea, "--tenant", whose)
        assert stored.returncode == 0
    output = butlers("trigger", place, "Which tea?", "--tenant", other).stdout
    assert "a black tea of mine" in output
    assert "green" not in output


@pytest.mark.parametrize(
    ("program", "extra", "message"),
    [
        ("echo 'out of tea' >&2; exit 3", "", "exit code 3: out of tea"),
        ("sleep 600", "timeout_seconds = 1\n", "took longer than 1 s"),
    ],
)
def test_a_failed_session_is_one_line_and_no_answer(butlers, thinking, program, extra, message):
    done = butlers("trigger", thinking(program, extra), "How?", BUTLERS_LOG="error")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("butlers: ")
    assert message in line


def test_a_program_that_is_not_there_is_said_so(butlers, thinking):
    place = thinking("cat")
    (place / "think").unlink()
    done = butlers("trigger", place, "How?", BUTLERS_LOG="error")
    assert (done.returncode, done.stdout) == (1, "")
    assert "think" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_is_not_there_is_reported_before_the_database_is_opened(butlers, thinking):
    place = thinking("cat")
    (place / "think").unlink()
    done = butlers("trigger", place, "How?", BUTLERS_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "think is not installed" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interruption_ends_the_session_and_its_program(thinking, query, home, tmp_path, number):
    place = thinking("trap '' TERM; touch begun; sleep 600")
    program = [sys.executable, "-m", "butlers.cli", "trigger", str(place), "How?"]
    with (tmp_path / "log").open("w") as log:
        running = subprocess.Popen(program, env={**os.environ, "BUTLERS_HOME": str(home)}, stdout=log, stderr=log)
    await wait_until((place / "begun").exists, "the program to run", 40)
    running.send_signal(number)
    assert running.wait(30) == 128 + number
    (session,) = await query(place, "select * from sessions")
    await wait_until(lambda: not session_processes(session["id"]), "the program to be gone", 10)
    assert session["status"] == "cancelled"
    assert "Traceback" not in (tmp_path / "log").read_text()
