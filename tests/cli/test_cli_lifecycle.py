"""The `butlers init`, `run`, `dsn` and `migrate` commands."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx2
import pytest
from fastmcp import Client

from butlers import embedded_server
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY

ROOT = Path(__file__).parents[2]


@contextmanager
def run_until_ready(home, *arguments, cwd=None, prefix=(), **variables):
    """Run `butlers run …`; yield the process and its stderr up to `ready:`."""
    running = subprocess.Popen(
        [sys.executable, *prefix, "-m", "butlers.cli", "run", *map(str, arguments)],
        env={**os.environ, "BUTLERS_HOME": str(home), **variables},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    try:
        for line in running.stderr or ():
            lines.append(line.rstrip("\n"))
            if line.startswith("ready: "):
                break
        yield running, lines
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)


def test_init_writes_a_butler_that_runs(butlers, home, tmp_path):
    folder = tmp_path / "My Butler"
    name = f"t{uuid.uuid4().hex[:12]}"
    created = butlers("init", folder, "--name", name)
    assert created.returncode == 0
    assert created.stdout.splitlines() == [
        f"wrote {folder / 'butler.toml'}",
        f"wrote {folder / 'CLAUDE.md'}",
        f"Next: butlers run '{folder}'",
    ]
    assert f'name = "{name}"' in (folder / "butler.toml").read_text()
    assert name in (folder / "CLAUDE.md").read_text()
    with run_until_ready(home, folder, "--port", "0") as (running, lines):
        address = lines[-1].removeprefix("ready: ")
        assert httpx2.get(address.replace("/mcp", "/health")).json() == {"status": "ready", "butler": name}
    assert running.returncode == 0
    states = {check["name"]: check["state"] for check in json.loads(butlers("doctor", folder, "--json").stdout)}
    assert "fail" not in states.values(), states


@pytest.mark.parametrize("name", ["coding", "general", "health", "memory", "personal"])
async def test_an_example_starts_and_serves_its_tools(home, cluster, tmp_path, name):
    folder = shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    text = (folder / "butler.toml").read_text()
    # Another name gives it a database of its own.
    (folder / "butler.toml").write_text(text.replace(f'name = "{name}"', f'name = "t{uuid.uuid4().hex[:12]}"', 1))
    with run_until_ready(home, folder, "--port", "0") as (_, lines):
        async with Client(lines[-1].removeprefix("ready: ")) as client:
            offered = {tool.name for tool in await client.list_tools()}
            fact = {"subject": "user", "predicate": "tea", "content": "green tea"}
            stored = (await client.call_tool("memory_store_fact", fact)).structured_content
            found = (await client.call_tool("memory_get", {"memory_type": "fact", "memory_id": stored["id"]})).data
    assert len(offered) == 19 if name != "memory" else len(offered) > 19
    assert found is not None


def test_init_says_in_json_what_it_wrote(butlers, tmp_path):
    created = butlers("init", tmp_path / "new", "--json")
    assert [each["wrote"] for each in json.loads(created.stdout)] == [
        str(tmp_path / "new" / "butler.toml"),
        str(tmp_path / "new" / "CLAUDE.md"),
    ]


def test_init_names_the_butler_after_its_folder(butlers, tmp_path):
    assert butlers("init", tmp_path / "My Butler").returncode == 0
    assert 'name = "my-butler"' in (tmp_path / "My Butler" / "butler.toml").read_text()


def test_init_refuses_a_blank_folder_and_quotes_one_with_a_blank(butlers, tmp_path):
    refused = butlers("init", "")
    assert (refused.returncode, refused.stderr) == (
        1,
        "butlers: DIR is blank. Name a folder; `.` is the current one.\n",
    )
    done = butlers("init", tmp_path / "My Butler")
    assert done.stdout.endswith(f" run '{tmp_path / 'My Butler'}'\n")


def test_the_version_is_printed(butlers):
    assert re.fullmatch(r"butlers \d+\.\d+\.\d+\n", butlers("--version").stdout)


def test_init_overwrites_nothing(butlers, tmp_path):
    (tmp_path / "CLAUDE.md").write_text("mine")
    refused = butlers("init", tmp_path, "--name", "another")
    assert refused.returncode == 1
    assert refused.stderr == f"butlers: {tmp_path / 'CLAUDE.md'} already exists. Choose an empty folder.\n"
    assert (tmp_path / "CLAUDE.md").read_text() == "mine"
    assert not (tmp_path / "butler.toml").exists()


@pytest.mark.parametrize("name", ["Upper", "9lives", "a b", "x" * 41, "ä"])
def test_init_refuses_what_can_not_name_a_butler(butlers, tmp_path, name):
    refused = butlers("init", tmp_path / "new", "--name", name)
    assert refused.returncode == 1
    assert "can't name a butler" in refused.stderr
    assert not (tmp_path / "new").exists()


def test_run_in_the_current_folder_prints_its_address(home, cluster, place):
    with run_until_ready(home, cwd=place) as (running, lines):
        assert re.fullmatch(r"ready: http://127\.0\.0\.1:\d+/mcp", lines[-1])
        address = lines[-1].removeprefix("ready: ")
        assert any(f"claude mcp add --transport http {place.name} {address}" in line for line in lines)
        snippet = json.loads(next(line for line in lines if "mcpServers" in line).split(": ", 1)[1])
        assert snippet["mcpServers"][place.name] == {"type": "http", "url": address}
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
    assert (running.returncode, out) == (0, "")


def test_run_at_head_imports_neither_alembic_nor_sqlalchemy(butlers, home, place):
    assert butlers("migrate", place).returncode == 0
    with run_until_ready(home, place, prefix=("-X", "importtime")) as (running, lines):
        pass
    imported = {line.rsplit("|", 1)[-1].strip() for line in lines if line.startswith("import time:")}
    assert "fastmcp" in imported
    assert not {name for name in imported if name.split(".")[0] in {"alembic", "sqlalchemy", "onnxruntime", "mako"}}
    assert running.returncode == 0


def test_dsn_imports_no_server(butlers, place):
    assert butlers("migrate", place).returncode == 0
    answer = butlers("dsn", place, PYTHONPROFILEIMPORTTIME="1")
    imported = {line.rsplit("|", 1)[-1].strip() for line in answer.stderr.splitlines()}
    assert "asyncpg" in imported
    assert not {name for name in imported if name.split(".")[0] in {"fastmcp", "mcp", "uvicorn", "alembic"}}


def psql(uri, statement):
    program = embedded_server._binaries() / "psql"
    return subprocess.run(
        [program, uri, "--no-psqlrc", "-tAc", statement], capture_output=True, text=True, timeout=30, check=False
    )


async def test_psql_takes_both_addresses_and_only_the_administrator_sees_every_tenant(butlers, new):
    plain, admin = butlers("dsn", new), butlers("dsn", new, "--admin")
    assert (plain.returncode, len(plain.stdout.splitlines())) == (0, 1)
    application, administrator = plain.stdout.strip(), admin.stdout.strip()
    connection = await asyncpg.connect(administrator)
    for tenant in ("acme", "globex"):
        await connection.execute(
            "insert into job_runs (tenant_id, job, status) values ($1, 'job', 'succeeded')", tenant
        )
    await connection.close()
    assert psql(administrator, "select count(*) from job_runs").stdout == "2\n"
    refused = psql(application, "select count(*) from job_runs")
    assert refused.returncode == 1
    assert "tenant context is not set" in refused.stderr
    own = psql(application, "set app.tenant_id = 'acme'; select count(*) from job_runs")
    assert own.stdout.splitlines()[-1] == "1"
    assert psql(application, "select rolsuper from pg_roles where rolname = current_user").stdout == "f\n"
    assert json.loads(butlers("dsn", new, "--json").stdout) == {"dsn": application}


@pytest.fixture
def another_home():
    """Return a BUTLERS_HOME with a server of its own, readable for the server's user."""
    folder = Path(tempfile.mkdtemp(prefix="butlers-home-"))
    folder.chmod(0o755)
    yield folder
    embedded_server.acquire(folder).release()
    shutil.rmtree(folder)


def test_dsn_leaves_the_server_running(butlers, new, another_home):
    answer = butlers("dsn", new, BUTLERS_HOME=str(another_home))
    assert answer.returncode == 0, answer.stderr
    assert psql(answer.stdout.strip(), "select 1").stdout == "1\n"
    assert embedded_server.acquire(another_home).release()
    assert psql(answer.stdout.strip(), "select 1").returncode == 2


def test_migrate_goes_from_nothing_to_head_and_then_stays(butlers, new):
    heads = [("core", CORE.head), ("memory", MEMORY.head)]
    first = butlers("migrate", new, "--json")
    assert json.loads(first.stdout) == [{"branch": name, "from": "nothing", "to": head} for name, head in heads]
    again = butlers("migrate", cwd=new)
    assert again.returncode == 0
    for name, head in heads:
        assert re.search(rf"{name}\s+│\s+{head}\s+│\s+{head}", again.stdout)


def test_a_folder_without_a_butler_is_refused_in_one_line(butlers, tmp_path):
    for command in ("run", "dsn", "migrate"):
        refused = butlers(command, tmp_path)
        assert refused.returncode == 1
        assert refused.stderr == f"butlers: there is no butler.toml in {tmp_path}. `butlers init DIR` writes one.\n"
        assert refused.stdout == ""


def test_a_wrong_configuration_names_the_key_and_the_line(butlers, new):
    with (new / "butler.toml").open("a") as file:
        file.write("colour = 1\n")
    refused = butlers("run", new)
    assert refused.returncode == 1
    assert "modules.memory.colour" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_wrong_variable_is_refused_in_one_line(butlers, place):
    refused = butlers("dsn", place, BUTLERS_LOG="loud")
    assert refused.returncode == 1
    assert refused.stderr.startswith("butlers: ")
    assert "BUTLERS_LOG" in refused.stderr


def test_a_database_that_is_not_there_is_said_so_without_its_password(butlers, place):
    refused = butlers("run", place, BUTLERS_DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/none")
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    assert "hunter2" not in refused.stderr
    assert "Traceback" not in refused.stderr
