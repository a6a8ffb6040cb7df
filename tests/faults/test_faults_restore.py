"""A hostile backup (row 47), and a restore that is killed (row 48)."""
# ruff: noqa: S608 — the statements are made of constants

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from butlers import app, embedded_server
from cli.shell import Shell
from database.butler_processes import connected, eventually, is_alive, wait_until, write_folder
from database.catalog import describe

FACTS = 3000


@pytest.fixture(scope="module")
def shell(home: Path, cluster: embedded_server.Cluster) -> Iterator[Shell]:
    started = Shell(home)
    yield started
    started.close()


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """A butler that has no database yet."""
    return write_folder(tmp_path, probe=False)


@pytest.fixture(scope="module")
def source(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A butler with facts, and the URI of its database as a superuser."""
    folder = write_folder(tmp_path_factory.mktemp("source"), probe=False)
    assert shell("memory", "store-fact", folder, "Ada", "town", "London").returncode == 0
    dsn = shell("dsn", folder, "--admin").stdout.strip()
    asyncio.run(_fill(dsn))
    return folder, dsn


async def _fill(dsn: str) -> None:
    """Add facts, enough for a restore to take seconds."""
    async with connected(dsn) as connection:
        await connection.execute(f"""
            insert into facts (tenant_id, subject, predicate, content, embedding, search_vector)
            select 'default', 'subject ' || n, 'p', text, vector, to_tsvector('english', text)
              from (
                   select n,
                          (select string_agg(md5(n || '.' || i), ' ') from generate_series(1, 20) i) as text,
                          (select array_agg(sin(n * i)) from generate_series(1, 384) i)::vector(384) as vector
                     from generate_series(1, {FACTS}) n
              ) generated
        """)


@pytest.fixture(scope="module")
def original(shell: Shell, source: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The backup of the source, which no test changes."""
    file = tmp_path_factory.mktemp("original") / "b.backup"
    assert shell("backup", source[0], file).returncode == 0
    return file


@pytest.fixture
def backup(original: Path, tmp_path: Path) -> Path:
    """A copy of the backup."""
    return Path(shutil.copy(original, tmp_path / "b.backup"))


@pytest.fixture
def marker() -> Iterator[Path]:
    """A file that hostile statements create, in a folder that is open to the server's user."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder) / "ran"


async def tables(place: Path, environment) -> int:
    """Count the tables without migrating."""
    async with (
        app.locate_database(app.load_configuration(place), environment) as location,
        location.owner_connection() as owner,
    ):
        return int(await owner.fetchval("select count(*) from pg_tables where schemaname = 'public'"))


def forge(backup: Path, table: str, statement: str) -> None:
    """Replace the statement that loads a table, in the table of contents, by another of the same length."""
    content = backup.read_bytes()
    (original,) = re.findall(rb"COPY public\.%b \([^)]*\) FROM stdin;\n" % table.encode(), content)
    assert len(statement.encode()) + 3 <= len(original), "too long to be hidden there"
    backup.write_bytes(content.replace(original, (statement + "\n--").encode().ljust(len(original) - 1) + b"\n"))


STATEMENTS = {
    "a program": "RESET ROLE; COPY (SELECT 1) TO PROGRAM 'tee {marker}';",
    "another session": "SET SESSION AUTHORIZATION postgres; COPY (SELECT 1) TO PROGRAM 'tee {marker}';",
    "a command of psql": "\\! touch {marker}",
    "output of psql into a program": "SELECT 1 \\g |tee {marker}",
    "a block": "RESET ROLE; DO $$ BEGIN EXECUTE 'COPY (SELECT 1) TO PROGRAM ''tee {marker}'''; END $$;",
    "a file": "RESET ROLE; COPY (SELECT 1) TO '{marker}';",
    "a setting of the server": "COMMIT; RESET ROLE; ALTER SYSTEM SET archive_command = 'touch {marker}';",
    "a function": "CREATE FUNCTION public.evil() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';",
    "open tables": "ALTER TABLE public.api_keys DISABLE ROW LEVEL SECURITY;",
    "another table": "COPY public.alembic_version (version_num) FROM stdin;",
    "rows from a program": "COPY public.facts FROM PROGRAM 'touch {marker}';",
}


@pytest.mark.parametrize("attack", STATEMENTS)
async def test_row_47_a_statement_forged_into_a_backup_is_refused_and_not_run(
    shell, backup, new, environment, marker, cluster, attack
):
    forge(backup, "facts", STATEMENTS[attack].format(marker=marker))
    done = shell("restore", new, backup)
    assert not marker.exists()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("butlers: the backup h"), done.stderr
    assert "The database is unchanged." in done.stderr
    assert await tables(new, environment) == 0
    async with connected(cluster.dsn("postgres")) as superuser:
        assert await superuser.fetchval("select count(*) from pg_file_settings where setting like '%touch%'") == 0


@pytest.fixture
async def hostile(shell, tmp_path, marker) -> tuple[Path, str]:
    """A backup of a database that its superuser filled with traps, each of which creates the marker."""
    folder = write_folder(tmp_path, probe=False)
    assert shell("memory", "store-fact", folder, "Ada", "town", "London").returncode == 0
    dsn = shell("dsn", folder, "--admin").stdout.strip()
    async with connected(dsn) as superuser:
        await superuser.execute(f"""
            create function evil() returns boolean language plpgsql security definer as $$
            begin execute $c$copy (select 1) to program 'tee {marker}'$c$; return true; end $$;
            create or replace function facts_normalize_validity() returns trigger language plpgsql as $$
            begin perform public.evil(); return new; end $$;
            create or replace function current_tenant() returns text language sql as $$ select 'default' $$;
            create function evil_trigger() returns trigger language plpgsql as $$
            begin perform public.evil(); return new; end $$;
            create trigger evil after insert on facts for each row execute function evil_trigger();
            create function evil_event() returns event_trigger language plpgsql as $$
            begin perform public.evil(); end $$;
            create event trigger evil on ddl_command_end execute function evil_event();
            alter table facts add constraint evil check (evil()) not valid;
            alter table rules alter column content set default evil()::text;
            create view evil_view as select evil();
            create policy evil on facts using (true) with check (true);
            alter table api_keys disable row level security;
            grant all on api_keys to public;
            drop index facts_by_key;
            create schema evil;
        """)
        program = [str(embedded_server.program_path("pg_dump")), "--format=custom", f"--file={tmp_path / 'h.backup'}"]
        await asyncio.to_thread(subprocess.run, [*program, f"--dbname={dsn}"], check=True)
        await superuser.execute("drop event trigger evil")
    marker.unlink(missing_ok=True)
    return tmp_path / "h.backup", dsn


async def test_row_47_of_a_hostile_database_the_rows_are_restored_and_nothing_else(
    shell, source, hostile, new, marker
):
    done = shell("restore", new, hostile[0])
    assert done.returncode == 0, done.stderr
    dsn = shell("dsn", new, "--admin").stdout.strip()
    assert await describe(dsn) == await describe(source[1]), "the schema is that of the migrations"
    async with connected(dsn) as superuser:
        assert await superuser.fetchval("select content from facts") == "London"
    assert shell("memory", "store-fact", new, "Ada", "town", "Paris").returncode == 0
    assert not marker.exists()


async def test_row_47_rows_of_a_table_that_no_butler_has_are_refused_by_name(
    shell, source, new, tmp_path, environment
):
    async with connected(source[1]) as superuser:
        await superuser.execute("create schema theirs; create table theirs.notes (n int)")
        program = [str(embedded_server.program_path("pg_dump")), "--format=custom", f"--file={tmp_path / 'x.backup'}"]
        await asyncio.to_thread(subprocess.run, [*program, f"--dbname={source[1]}"], check=True)
        await superuser.execute("drop schema theirs cascade")
    done = shell("restore", new, tmp_path / "x.backup")
    assert done.returncode == 1
    assert "has rows of theirs.notes, which is no table of this butler." in done.stderr
    assert await tables(new, environment) == 0


async def test_row_47_a_row_that_breaks_a_rule_of_its_table_is_refused_without_its_content(
    shell, source, new, tmp_path, environment
):
    async with connected(source[1]) as superuser, superuser.transaction():
        await superuser.execute("alter table facts drop constraint facts_confidence_range")
        await superuser.execute(
            "insert into facts (tenant_id, subject, predicate, content, confidence)"
            " values ('t', 's', 'p', 'secret', 7)"
        )
    program = [str(embedded_server.program_path("pg_dump")), "--format=custom", f"--file={tmp_path / 'x.backup'}"]
    subprocess.run([*program, f"--dbname={source[1]}"], check=True)
    async with connected(source[1]) as superuser:
        await superuser.execute("delete from facts where tenant_id = 't'")
        await superuser.execute(
            "alter table facts add constraint facts_confidence_range check (confidence between 0 and 1)"
        )
    done = shell("restore", new, tmp_path / "x.backup")
    assert done.returncode == 1
    assert "a row that does not fit the table facts (facts_confidence_range)" in done.stderr
    assert "secret" not in done.stderr
    assert await tables(new, environment) == 0


def start_restore(folder: Path, backup: Path, home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "restore", str(folder), str(backup)],
        env={**os.environ, "BUTLERS_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


BACKENDS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
MOMENTS = {
    "reading the file": None,
    "migrating": "select exists (select from pg_locks where locktype = 'advisory' and granted"
    " and database = (select oid from pg_database where datname = current_database()))",
    "loading": f"select exists (select {BACKENDS} and query like 'COPY%facts%')",
    "indexing": f"select exists (select {BACKENDS} and query like 'CREATE INDEX%')",
    "adding foreign keys": f"select exists (select {BACKENDS} and query like 'alter table%add constraint%')",
}


async def reach(
    moment: str, restoring: subprocess.Popen[str], watching: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    """Wait until a restore is at that moment."""
    statement = MOMENTS[moment]
    while not (await watching.fetchval(statement) if statement else psutil.Process(restoring.pid).children()):
        assert restoring.poll() is None, "it was too quick to be killed"
        await asyncio.sleep(0)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_row_48_nothing_goes_on_after_a_restore_is_killed_and_the_next_one_works(
    shell, backup, new, environment, home, moment
):
    async with (
        app.locate_database(app.load_configuration(new), environment) as location,
        connected(location.admin_dsn) as watching,
    ):
        restoring = start_restore(new, backup, home)
        await reach(moment, restoring, watching)
        children = psutil.Process(restoring.pid).children(recursive=True)
        restoring.kill()
        restoring.communicate()
        assert restoring.returncode == -signal.SIGKILL
        started = time.monotonic()

        async def is_over() -> bool:
            return not await watching.fetchval(f"select count(*) {BACKENDS}")

        await eventually(is_over, "the server to end the work of the restore", seconds=10)
        wait_until(lambda: not any(is_alive(child.pid) for child in children), "its programs to end", seconds=10)
        assert time.monotonic() - started < 10
        assert not await watching.fetchval("select count(*) from pg_tables where schemaname = 'public'")
    again = shell("restore", new, backup, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["rows"]["facts"] == FACTS + 1


@pytest.mark.parametrize("ending", ["killed", "finished"])
async def test_row_48_a_second_restore_says_that_another_one_runs(shell, backup, new, environment, home, ending):
    async with (
        app.locate_database(app.load_configuration(new), environment) as location,
        connected(location.admin_dsn) as watching,
    ):
        restoring = start_restore(new, backup, home)
        await reach("loading", restoring, watching)
        restoring.send_signal(signal.SIGSTOP)
        try:
            second = shell("restore", new, backup)
        finally:
            if ending == "killed":
                restoring.kill()
            restoring.send_signal(signal.SIGCONT)
        assert (second.returncode, second.stdout) == (1, "")
        assert second.stderr.startswith(
            "butlers: another process is migrating or restoring this database. Wait until"
        )
        restoring.communicate(timeout=60)
    third = shell("restore", new, backup)
    if ending == "killed":
        assert third.returncode == 0, third.stderr
    else:
        assert restoring.returncode == 0
        assert third.stderr.startswith(
            "butlers: the butler's database is not empty: it has rows in embedding_versions"
        )


async def test_row_48_a_restore_whose_connection_is_cut_leaves_the_database_empty(
    shell, backup, new, environment, home
):
    async with (
        app.locate_database(app.load_configuration(new), environment) as location,
        connected(location.admin_dsn) as watching,
    ):
        restoring = start_restore(new, backup, home)
        await reach("loading", restoring, watching)
        await watching.fetch(f"select pg_terminate_backend(pid) {BACKENDS}")
        _, errors = restoring.communicate(timeout=30)
    assert restoring.returncode == 1
    assert errors.startswith("butlers: the database ended the connection."), errors
    assert await tables(new, environment) == 0


async def test_row_48_a_backup_that_is_killed_leaves_no_program_and_no_file_under_its_name(
    shell, source, home, tmp_path
):
    file = tmp_path / "out.backup"
    environment = {**os.environ, "BUTLERS_HOME": str(home)}
    writing = subprocess.Popen([sys.executable, "-m", "butlers.cli", "backup", source[0], file], env=environment)
    wait_until(lambda: running_dumps(writing.pid), "pg_dump to start")
    (program,) = running_dumps(writing.pid)
    writing.kill()
    writing.wait()
    wait_until(lambda: not is_alive(program.pid), "pg_dump to end", seconds=10)
    assert [path.name[:16] for path in tmp_path.iterdir()] == [".butlers-backup-"]
    assert shell("backup", source[0], file).returncode == 0
    assert list(tmp_path.iterdir()) == [file], "the next backup deletes what the killed one left"


def running_dumps(pid: int) -> list[psutil.Process]:
    """Return the processes of a backup that dump; others only ask a program for its version."""
    found = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.Error):
            found += [child] if "--format=custom" in child.cmdline() else []
    return found
