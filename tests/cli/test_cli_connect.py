"""The `butlers connect` command in a project of Claude Code, and what holds for every agent."""

import asyncio
import json
import os
import pty
import shlex
import signal
import subprocess
import sys

import pytest
from fastmcp import Client

import models

from .conftest import write_butler

HOOKS = ("SessionStart", "SessionEnd")


@pytest.fixture
def project(tmp_path):
    """Return a project that already has a server, a permission and hooks."""
    folder = tmp_path / "some project"
    (folder / ".claude").mkdir(parents=True)
    servers = {"mcpServers": {"others": {"command": "other", "args": ["ä"]}}, "comment": "stays"}
    kept = {"matcher": "startup", "hooks": [{"type": "command", "command": "echo hello"}]}
    settings = {"hooks": {"SessionStart": [kept], "Stop": [kept]}, "permissions": {"allow": ["Bash(ls:*)"]}}
    (folder / ".mcp.json").write_text(json.dumps(servers, indent=4, ensure_ascii=False))
    (folder / ".claude" / "settings.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def connect(shell, place):
    """Run `butlers connect` for the butler; it must succeed."""

    def run(project, *words):
        result = shell("connect", place, "claude-code", "--project", project, *words)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    return run


def files(project):
    return {str(path.relative_to(project)): path.read_text() for path in project.rglob("*") if path.is_file()}


def commands(project, name="settings.json"):
    """Return the commands of all hooks, by event."""
    hooks = json.loads((project / ".claude" / name).read_text())["hooks"]
    return {
        event: [hook["command"] for group in groups for hook in group["hooks"]] for event, groups in hooks.items()
    }


def test_existing_servers_and_hooks_stay(connect, project, place, home):
    connect(project)
    servers = json.loads((project / ".mcp.json").read_text())
    assert servers["comment"] == "stays"
    assert servers["mcpServers"]["others"] == {"command": "other", "args": ["ä"]}
    assert servers["mcpServers"][place.name]["args"][-3:] == ["run", str(place), "--stdio"]
    hooked = commands(project)
    assert hooked["Stop"] == ["echo hello"]
    assert hooked["SessionStart"][0] == "echo hello"
    assert all(shlex.split(hooked[event][-1])[:2] == ["env", f"BUTLERS_HOME={home}"] for event in HOOKS)
    assert [shlex.split(hooked[event][-1])[-3:] for event in HOOKS] == [
        ["hook", "session-start", str(place)],
        ["hook", "session-end", str(place)],
    ]
    assert json.loads((project / ".claude" / "settings.json").read_text())["permissions"] == {"allow": ["Bash(ls:*)"]}


def test_the_changes_are_shown(connect, project):
    before = files(project)
    output = connect(project)
    for name, text in files(project).items():
        more = [line for line in text.splitlines() if line not in before[name].splitlines()]
        assert all(f"+{line}\n" in output for line in more)
        assert f"wrote {project / name}\n" in output


def test_a_second_time_changes_nothing(connect, project):
    connect(project)
    before = files(project)
    assert connect(project) == "Nothing to change.\n"
    assert files(project) == before


def test_removing_leaves_every_byte_as_it_was(connect, project):
    before = files(project)
    connect(project)
    connect(project, "--remove")
    assert files(project) == before
    assert connect(project, "--remove") == "Nothing to change.\n"
    assert files(project) == before


def test_removing_from_a_project_that_had_nothing_leaves_no_file(connect, tmp_path):
    folder = tmp_path / "new project"
    folder.mkdir()
    connect(folder)
    assert set(files(folder)) == {".mcp.json", ".claude/settings.json"}
    assert f"removed {folder / '.mcp.json'}" in connect(folder, "--remove")
    assert list(folder.iterdir()) == []


def test_another_butler_stays_when_one_is_taken_out(shell, connect, project, tmp_path):
    other = write_butler(tmp_path, "other_butler")
    assert shell("connect", other, "claude-code", "--project", project).returncode == 0
    before = files(project)
    connect(project)
    connect(project, "--remove")
    assert files(project) == before


def test_hooks_for_oneself_are_not_in_the_shared_file_and_never_in_both(connect, project):
    shared = (project / ".claude" / "settings.json").read_text()
    connect(project)
    connect(project, "--local")
    assert (project / ".claude" / "settings.json").read_text() == shared
    assert set(commands(project, "settings.local.json")) == {"SessionStart", "SessionEnd"}
    connect(project, "--remove")
    assert "settings.local.json" not in " ".join(files(project))


@pytest.mark.parametrize("broken", [b"{", b"[]", b'{"hooks": 7}', b"\xff\xfe"])
def test_a_file_that_can_not_be_understood_is_left_alone_and_so_is_the_other(shell, place, project, broken):
    (project / ".claude" / "settings.json").write_bytes(broken)
    servers = (project / ".mcp.json").read_bytes()
    refused = shell("connect", place, "claude-code", "--project", project)
    assert refused.returncode == 1
    assert "settings.json" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert (project / ".claude" / "settings.json").read_bytes() == broken
    assert (project / ".mcp.json").read_bytes() == servers


@pytest.mark.parametrize("depth", [5_000, 100_000])
def test_row_51_a_file_nested_too_deeply_is_left_alone_with_a_way_out(shell, place, project, depth):
    nested = '{"mcpServers": {}, "x": ' + "[" * depth + "]" * depth + "}"
    (project / ".mcp.json").write_text(nested)
    done = shell("connect", place, "claude-code", "--project", project)
    assert done.returncode == 1
    assert f"{project / '.mcp.json'} is nested too deeply to be a configuration" in " ".join(done.stderr.split())
    assert "Fix or delete it, then connect again." in " ".join(done.stderr.split())
    assert (project / ".mcp.json").read_text() == nested


def test_a_project_that_is_not_there_is_not_made(shell, place, tmp_path):
    refused = shell("connect", place, "claude-code", "--project", tmp_path / "no such")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "there is no folder" in refused.stderr
    assert not (tmp_path / "no such").exists()


def test_an_agent_has_to_be_named(shell, place):
    for words, output in (((), "no agent is named"), (("vim",), "vim is not a supported agent")):
        refused = shell("connect", place, *words)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"butlers: {output}. ")
        assert "claude-code, codex, gemini" in refused.stderr
        assert "--print" in refused.stderr


@pytest.fixture
def asked(home, place, project):
    """Run `butlers connect` on a terminal up to its question; yield the process and the terminal."""
    leader, follower = pty.openpty()
    words = ["connect", str(place), "claude-code", "--project", str(project)]
    with subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", *words],
        stdin=follower,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "BUTLERS_HOME": str(home)},
    ) as program:
        assert program.stderr
        output = b""
        while not output.endswith(b"Write this? [y/N] "):
            output += program.stderr.read(1)
        yield program, leader
        os.close(follower)
        os.close(leader)


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"], ids=["no", "nothing", "the end"])
def test_any_answer_but_yes_writes_nothing(asked, project, typed):
    before = files(project)
    program, terminal = asked
    os.write(terminal, typed)
    _, output = program.communicate(timeout=30)
    assert program.returncode == 1
    assert output.decode().strip() == "butlers: nothing was written. Answer y, or pass --yes."
    assert files(project) == before


def test_the_answer_yes_writes_the_files(asked, project, place):
    program, terminal = asked
    os.write(terminal, b"y\n")
    program.communicate(timeout=30)
    assert program.returncode == 0
    assert place.name in json.loads((project / ".mcp.json").read_text())["mcpServers"]


def test_an_interruption_is_an_answer_at_once(asked, project):
    before = files(project)
    program, _ = asked
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=30)
    assert program.returncode == 130
    assert files(project) == before


async def test_what_is_printed_for_other_clients_connects_one(shell, place, project, home):
    before = files(project)
    configuration = json.loads(shell("connect", place, "--print").stdout)
    (server,) = configuration["mcpServers"].values()
    assert server["env"] == {"BUTLERS_HOME": str(home)}
    async with Client(configuration) as client:
        names = {tool.name for tool in await client.list_tools()}
    assert "memory_recall" in names
    assert files(project) == before


def test_a_butler_that_runs_is_named_by_its_address_and_asks_for_a_key_by_a_variable(shell, tmp_path):
    open_to_all, with_keys = (
        write_butler(tmp_path, "one"),
        write_butler(tmp_path, "two", '[butler.auth]\nmode = "keys"\n'),
    )
    for place in (open_to_all, with_keys):
        text = (place / "butler.toml").read_text()
        (place / "butler.toml").write_text(text.replace("port = 0", "port = 8155"))
    address = {"type": "http", "url": "http://127.0.0.1:8155/mcp"}
    assert json.loads(shell("connect", open_to_all, "--print", "--http").stdout) == {"mcpServers": {"one": address}}
    assert json.loads(shell("connect", with_keys, "--print", "--http").stdout) == {
        "mcpServers": {"two": {**address, "headers": {"Authorization": "Bearer ${BUTLERS_KEY}"}}}
    }


def test_an_address_of_numbers_and_colons_stands_in_brackets(shell, tmp_path):
    place = write_butler(tmp_path, "six", '[butler.http]\nhost = "::1"\n')
    text = (place / "butler.toml").read_text()
    (place / "butler.toml").write_text(text.replace("port = 0", "port = 8155"))
    configuration = json.loads(shell("connect", place, "--print", "--http").stdout)
    assert configuration["mcpServers"]["six"]["url"] == "http://[::1]:8155/mcp"


async def test_the_address_of_another_butler_is_refused(shell, place, project):
    async with models.anything([models.as_json({"status": "ready", "butler": "somebody_else"})] * 2) as running:
        text = (place / "butler.toml").read_text()
        (place / "butler.toml").write_text(text.replace("port = 0", f"port = {running.port}"))
        before = files(project)
        for words in (["--print"], ["claude-code", "--project", project]):
            refused = await asyncio.to_thread(shell, "connect", place, *words, "--http")
            assert (refused.returncode, refused.stdout) == (1, "")
            assert refused.stderr.startswith(
                f"butlers: the butler somebody_else answers at http://127.0.0.1:{running.port}, not {place.name}."
            )
    assert files(project) == before


@pytest.mark.parametrize("health", [b"[" * 100_000, b'"' + b"x" * 1_000_000, b'{"butler": "\\u001b[2J\\nx"}'])
async def test_what_listens_at_the_address_can_not_write_to_the_terminal_or_without_end(shell, place, health):
    async with models.anything([models.Reply(health)]) as running:
        text = (place / "butler.toml").read_text()
        (place / "butler.toml").write_text(text.replace("port = 0", f"port = {running.port}"))
        done = await asyncio.to_thread(shell, "connect", place, "--print", "--http")
    if done.returncode:
        assert done.stderr.startswith("butlers: the butler [2J x answers at")
    assert "something went wrong" not in done.stderr


def test_a_port_that_is_any_free_one_is_no_address(shell, place):
    refused = shell("connect", place, "--print", "--http")
    assert (refused.returncode, refused.stderr.startswith("butlers: butler.port is 0")) == (1, True)
