"""Whatever a model, a job or a caller says reaches a terminal as text (row 36)."""

import json

import pytest

from database.stage import connected

from .conftest import written
from .test_cli_memory import HOSTILE

STEERS = {"\x1b", "\x07", "\x9b", "\u202e", "\u2066", "\u2028"}
SHOWN = (r"\x1b[31mred", r"\x07", "[bold]markup[/bold]", "{{x}}", ":smile:", "👩‍🚀")


def assert_text(shown: str) -> None:
    assert not set(shown) & STEERS
    joined = "".join(line.strip("│ ") for line in shown.splitlines())
    assert [part for part in SHOWN if part not in joined] == []


@pytest.fixture
def talking(tmp_path, worker):
    """A butler whose model says that."""
    script = tmp_path / "say.py"
    script.write_text(f"import sys\nsys.stdin.read()\nsys.stdout.buffer.write({HOSTILE!r}.encode())\n")
    command = json.dumps(["python3", "-I", "-S", str(script)])
    return written(tmp_path, f"cli_{worker}", f'[butler.runtime]\ntype = "command"\ncommand = {command}\n')


def test_row_36_what_a_session_answers_steers_no_terminal(shell, talking):
    done = shell("trigger", talking, "Say it")
    assert done.returncode == 0, done.stderr
    assert_text(done.stdout)
    told = json.loads(shell("trigger", talking, "Say it", "--json").stdout)
    assert told["answer"].strip() == HOSTILE, "programs get it as it is"


async def test_row_36_why_a_job_failed_steers_no_terminal(shell, new):
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


def test_row_36_who_a_key_is_for_steers_no_terminal(shell, new):
    made = shell("key", "create", new, "--tenant", "acme", "--actor", HOSTILE)
    assert made.returncode == 0, made.stderr
    assert_text(shell("key", "list", new, columns=400).stdout)


def test_row_36_a_refusal_that_quotes_steers_no_terminal(shell, place):
    refused = shell("jobs", "run", place, HOSTILE)
    assert refused.returncode == 1
    assert_text(refused.stderr)
