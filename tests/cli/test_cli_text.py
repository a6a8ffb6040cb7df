"""Control characters from models, jobs and callers never reach a terminal (row 36)."""

import json

import pytest

from database.butler_processes import connected

from .conftest import write_butler
from .test_cli_memory import HOSTILE

CONTROL_CHARACTERS = {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028"}
SHOWN = (r"\x1b[31mred", r"\x07", "[bold]markup[/bold]", "{{x}}", ":smile:", "👩‍🚀")


def assert_text(shown: str) -> None:
    assert not set(shown) & CONTROL_CHARACTERS
    joined = "".join(line.strip("│ ") for line in shown.splitlines())
    assert [part for part in SHOWN if part not in joined] == []


@pytest.fixture
def talking(tmp_path, worker):
    """Return the folder of a butler whose model answers with control characters."""
    script = tmp_path / "say.py"
    script.write_text(f"import sys\nsys.stdin.read()\nsys.stdout.buffer.write({HOSTILE!r}.encode())\n")
    command = json.dumps(["python3", "-I", "-S", str(script)])
    return write_butler(tmp_path, f"cli_{worker}", f'[butler.runtime]\ntype = "command"\ncommand = {command}\n')


def test_row_36_the_answer_of_a_session_is_escaped(shell, talking):
    done = shell("trigger", talking, "Say it")
    assert done.returncode == 0, done.stderr
    assert_text(done.stdout)
    result = json.loads(shell("trigger", talking, "Say it", "--json").stdout)
    assert result["answer"].strip() == HOSTILE, "JSON has it unchanged"


async def test_row_36_the_error_of_a_job_is_escaped(shell, new):
    assert shell("migrate", new).returncode == 0
    async with connected(shell("dsn", new, "--admin").stdout.strip()) as connection:
        await connection.execute(
            "insert into job_runs (tenant_id, job, status, error) values ('default', 'decay_sweep', 'failed', $1),"
            " ('default', $2, 'failed', $1)",
            HOSTILE,
            f"{new.name}/decay_sweep",
        )
    for words in (("jobs", "list"), ("doctor",)):
        assert_text(shell(*words, new, columns=400).stdout)


def test_row_36_the_actor_of_a_key_is_escaped(shell, new):
    made = shell("key", "create", new, "--tenant", "acme", "--actor", HOSTILE)
    assert made.returncode == 0, made.stderr
    assert_text(shell("key", "list", new, columns=400).stdout)


def test_row_36_a_refusal_that_quotes_input_is_escaped(shell, place):
    refused = shell("jobs", "run", place, HOSTILE)
    assert refused.returncode == 1
    assert_text(refused.stderr)
