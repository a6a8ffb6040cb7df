"""`butlers connect --check`: what is there, what is current, and whether the entry works."""

import json
import sys
from pathlib import Path

import pytest

from butlers.agents import AGENTS
from butlers.connect import plan_connect
from butlers.connect.checking import check_connection, check_files
from butlers.hooks.delivery import accept_event
from butlers.hooks.health import check_outbox
from butlers.hooks.outbox import Outbox
from cli.conftest import write_butler

from .conftest import make_config
from .test_connect_agents import apply, connection_of

PROGRAMS = f"{Path(sys.executable).parent}/"


def states(checks):
    return {check.name: check.state for check in checks}


def connected(config, name, project, **more):
    connection = connection_of(config, name, project, **more)
    apply(plan_connect(connection))
    return connection


async def test_without_an_entry_the_check_says_how_to_connect(config, project):
    connection = connection_of(config, "cursor", project)
    (check,) = await check_connection(connection)
    assert (check.name, check.state) == ("server", "fail")
    assert check.found == f"{project / '.cursor' / 'mcp.json'} has no server tea_house"
    assert check.fix == f"Run `butlers connect {config.folder} cursor --project {project}`."


@pytest.mark.parametrize("name", AGENTS)
def test_what_was_just_connected_is_current(config, project, name):
    place = project if AGENTS[name].has_project_files else None
    connection = connected(config, name, place, over_http=AGENTS[name].servers.http is not None)
    expected = {"server": "ok", "hooks": "ok"} if AGENTS[name].hooks else {"server": "ok"}
    assert states(check_files(connection_of(config, name, place))) == expected
    assert check_files(connection)[0].found.endswith("over HTTP") == connection.over_http


@pytest.mark.parametrize("name", ["cursor", "codex", "gemini", "opencode"])
def test_an_old_entry_and_old_hooks_are_found(config, project, name):
    connection = connected(config, name, project)
    for path in project.rglob("*"):
        if path.is_file():
            path.write_text(path.read_text().replace(PROGRAMS, "/old/"))
    server, hooks = check_files(connection)
    assert (server.state, hooks.state) == ("warn", "warn")
    assert "not as it is written now" in server.found
    assert server.fix.endswith("again.")


def test_hooks_that_are_missing_are_found(config, project):
    connection = connected(config, "cursor", project)
    (project / ".cursor" / "hooks.json").unlink()
    assert states(check_files(connection)) == {"server": "ok", "hooks": "fail"}


def test_hooks_that_are_not_shared_are_hooks_too(config, project):
    connected(config, "claude-code", project, is_local=True)
    _, hooks = check_files(connection_of(config, "claude-code", project))
    assert hooks.found == f"{project / '.claude' / 'settings.local.json'} has the hooks"


async def test_a_butler_that_does_not_run_is_found(tmp_path, project, monkeypatch):
    config = make_config(tmp_path, "tea_house", "[butler.http]\n")
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path / "home"))
    *_, tools, outbox = await check_connection(connected(config, "cursor", project, over_http=True))
    assert (tools.name, tools.state, tools.fix) == ("tools", "fail", "Start the butler: `butlers run`.")
    assert outbox.state == "ok"


async def test_a_key_that_is_missing_is_named(tmp_path, project, monkeypatch):
    config = make_config(tmp_path, "tea_house", '[butler.auth]\nmode = "keys"\n')
    monkeypatch.setenv("BUTLERS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("BUTLERS_KEY", raising=False)
    *_, tools, _ = await check_connection(connected(config, "cursor", project, over_http=True))
    assert (tools.state, tools.found) == ("warn", "BUTLERS_KEY is not set here")


def test_events_that_wait_are_found(config, tmp_path):
    outbox = Outbox(tmp_path, config.folder)
    assert check_outbox(tmp_path, config.folder).state == "ok"
    accept_event(outbox, "turn-end", '{"prompt": "x"}', AGENTS["cursor"])
    outbox.note_error("the database is not there")
    check = check_outbox(tmp_path, config.folder)
    assert (check.state, check.fix) == ("warn", f"Run `butlers hook deliver {config.folder}`.")
    assert check.found == "1 events of hooks wait to be stored: the database is not there"


def test_an_outbox_that_can_not_be_used_is_found(tmp_path):
    (tmp_path / "hooks").write_text("a file")
    assert check_outbox(tmp_path, tmp_path).state == "warn"


def test_the_entry_is_started_where_the_agent_can_not_be_asked(butlers, tmp_path, worker, project, owner):
    """The checks are a table that fits a terminal."""
    butler = write_butler(tmp_path, f"check_{worker}")
    words, path = ("connect", butler, "cursor", "--project", project), f"{PROGRAMS}:/usr/bin:/bin"
    butlers(*words, HOME=str(owner))
    done = butlers(*words, "--check", HOME=str(owner), PATH=path, COLUMNS="80")
    assert done.returncode == 0, done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == ""
    assert "the entry works and has 19 tools" in done.stdout
    refused = butlers("connect", butler, "zed", "--project", project, "--check", "--json", HOME=str(owner))
    assert refused.returncode == 1
    assert [check["state"] for check in json.loads(refused.stdout)] == ["fail"]
