"""The `butlers backup` and `restore` commands."""
# ruff: noqa: S608 — the table names come from the database

import asyncio
import json
import re
import stat
import subprocess
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from butlers import app, embedded_server, migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY
from database.butler_processes import connected
from database.catalog import describe

from .conftest import write_butler
from .sample_memory import open_memory, sample_tenant


@pytest.fixture(scope="module")
async def full(tmp_path_factory, environment):
    """Return a butler with two sample tenants: its folder, its memory and their callers."""
    place = tmp_path_factory.mktemp("full") / "butler"
    async with open_memory(place, f"t{uuid4().hex[:12]}", environment) as opened:
        callers = [await sample_tenant(opened), await sample_tenant(opened)]
        yield place, opened, callers


@pytest.fixture
def backup(shell, full, tmp_path):
    """Return a backup of that butler."""
    file = tmp_path / "full.backup"
    done = shell("backup", full[0], file, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"file": str(file), "bytes": file.stat().st_size}
    return file


def dsn(shell, place) -> str:
    return shell("dsn", place, "--admin").stdout.strip()


async def rows(address: str) -> dict[str, list[str]]:
    """Return every row of every table as text."""
    async with connected(address) as connection:
        tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public' order by 1")
        return {
            table["tablename"]: [
                row[0] for row in await connection.fetch(f"select t::text from {table['tablename']} t order by 1")
            ]
            for table in tables
        }


def without_backups(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Leave out the records of backups: a backup is recorded after it is made."""
    return {**found, "job_runs": [row for row in found["job_runs"] if ",backup," not in row]}


async def test_every_row_of_every_table_comes_back_as_it_was(shell, full, backup, new):
    before = await rows(dsn(shell, full[0]))
    assert sum(bool(found) for found in before.values()) >= 8
    restored = shell("restore", new, backup, "--json")
    assert (restored.returncode, restored.stderr) == (0, "")
    report = json.loads(restored.stdout)
    assert {each["branch"]: each["to"] for each in report["schema"]}["memory"] == MEMORY.head
    after = await rows(dsn(shell, new))
    assert report["rows"] == {table: len(found) for table, found in after.items() if table != "alembic_version"}
    assert without_backups(after) == without_backups(before)
    assert await describe(dsn(shell, new)) == await describe(dsn(shell, full[0]))


async def test_a_restored_butler_finds_and_stores_and_keeps_its_tenants_apart(shell, full, backup, new):
    caller, other = full[2]
    assert shell("restore", new, backup).returncode == 0

    def memory(tenant, *words):
        done = shell("memory", *words, "--tenant", tenant, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    for mode in ("semantic", "keyword"):
        found = memory(caller.tenant, "search", new, "what does she eat: no meat", "--mode", mode, "--scope", "*")
        assert "eats no meat" in [each["content"] for each in found], mode
    stored = memory(caller.tenant, "store-fact", new, "Ada", "shoe_size", "thirty-nine")
    assert "id" in stored
    assert shell("memory", "get", new, "fact", stored["id"], "--tenant", other.tenant).returncode == 1
    assert {each["name"]: each["state"] for each in json.loads(shell("doctor", new, "--json").stdout)}[
        "row-level security"
    ] == "ok"
    async with connected(shell("dsn", new).stdout.strip()) as application:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="tenant context is not set"):
            await application.fetch("select * from facts")
        async with application.transaction():
            await application.execute("select set_config('app.tenant_id', $1, true)", caller.tenant)
            seen = await application.fetch("select distinct tenant_id from facts")
            assert [row["tenant_id"] for row in seen] == [caller.tenant]
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied"):
            await application.execute("delete from memory_events")


async def test_the_trail_of_a_restored_butler_is_still_append_only(shell, backup, new):
    assert shell("restore", new, backup).returncode == 0
    async with connected(dsn(shell, new)) as superuser:
        for change in ("delete from memory_events", "truncate memory_events"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
                await superuser.execute(change)


async def test_a_place_that_has_tables_is_refused_and_stays_as_it_is(shell, full, backup):
    before = await rows(dsn(shell, full[0]))
    done = shell("restore", full[0], backup)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("butlers: the butler's database is not empty: it has rows in ")
    assert done.stderr.endswith(
        " Restore under another name (butler.name), or into another database or BUTLERS_HOME.\n"
    )
    assert await rows(dsn(shell, full[0])) == before


async def tables(place, environment) -> int:
    """Count the tables without migrating."""
    async with (
        app.locate_database(app.load_configuration(place), environment) as found,
        found.owner_connection() as owner,
    ):
        return int(await owner.fetchval("select count(*) from pg_tables where schemaname = 'public'"))


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda content, share=share: content[: int(len(content) * share)] for share in (0.99, 0.95, 0.9, 0.8)),
        lambda content: content[: len(content) // 2],
        lambda content: content[:100],
        lambda _: b"",
        # In the rows: the first half lists statements, which a restore does not run.
        lambda content: content[: len(content) * 9 // 10] + b"\xff" * 400 + content[len(content) * 9 // 10 + 400 :],
        lambda _: b"not a backup at all\n" * 100,
    ],
    ids=["99 %", "95 %", "90 %", "80 %", "half", "a hundred bytes", "empty", "damaged inside", "something else"],
)
async def test_a_damaged_backup_fails_and_leaves_the_place_empty(shell, backup, new, environment, damage):
    content = backup.read_bytes()
    backup.write_bytes(damage(content))
    done = shell("restore", new, backup)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    if backup.read_bytes().startswith(b"PGDMP"):
        assert line.startswith("butlers: pg_restore failed: ")
        assert "The database is unchanged." in line
    else:
        assert line.startswith(f"butlers: {backup} is not a backup. Name a file that `butlers backup` wrote")
    assert "eats no meat" not in line
    assert await tables(new, environment) == 0
    backup.write_bytes(content)
    assert shell("restore", new, backup).returncode == 0, "the intact file is restored"


def test_only_its_owner_can_read_a_backup_and_nothing_is_left_beside_it(shell, full, tmp_path):
    file = tmp_path / "out" / "b.backup"
    file.parent.mkdir()
    for _ in range(2):
        assert shell("backup", full[0], file).stdout == f"wrote {file}, {file.stat().st_size:,} bytes\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_is_refused_as_a_backup_before_anything_is_dumped(shell, full, tmp_path):
    done = shell("backup", full[0], tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"butlers: {tmp_path} is a folder. Name a file in it, such as {tmp_path}/butler.backup.\n"
    assert list(tmp_path.glob(".butlers-backup-*")) == []


def test_a_restore_says_what_it_restored_and_from_when(shell, full, backup, new):
    done = shell("restore", new, backup)
    assert (done.returncode, done.stderr) == (0, "")
    today = datetime.now(UTC).strftime("%Y-%m-%d %H:")
    assert re.fullmatch(
        r"Restored \d+ facts, \d+ rules, \d+ episodes and \d+ entities of \d+ tenants, and \d+ other rows,\n"
        rf"from the backup of {today}\d\d UTC \(schema {CORE.head}, {MEMORY.head}\)\.\n",
        done.stdout,
    ), done.stdout
    assert not done.stdout.startswith("Restored 0 facts")


def test_a_database_with_tables_and_no_rows_is_restored_into(shell, backup, new):
    """`butlers doctor` migrates, and so do most commands."""
    assert shell("doctor", new).returncode == 0
    assert shell("restore", new, backup).returncode == 0
    assert shell("restore", new, backup).returncode == 1


def test_without_a_name_a_backup_is_called_after_the_butler_and_the_moment(butlers, full, tmp_path):
    assert butlers("backup", full[0], cwd=tmp_path).returncode == 0
    name = app.load_configuration(full[0]).butler.name
    (made,) = tmp_path.glob("*.backup")
    assert made.name.startswith(f"{name}-20")


@pytest.mark.parametrize("words", [("backup", "nowhere/x.backup"), ("restore", "nowhere.backup")])
def test_a_folder_or_file_that_is_not_there_is_named(shell, full, tmp_path, words):
    done = shell(words[0], full[0], tmp_path / words[1])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("butlers: there is no fo" if words[0] == "backup" else "butlers: there is no fi")


def test_a_backup_that_can_not_be_made_leaves_the_last_one(butlers, full, backup, tmp_path):
    before = backup.read_bytes()
    done = butlers("backup", full[0], backup, BUTLERS_DATABASE_URL="postgresql://me:hunter2@127.0.0.1:1/none")
    assert done.returncode == 1
    assert "hunter2" not in done.stderr
    assert backup.read_bytes() == before
    assert list(tmp_path.glob(".butlers-backup-*")) == []


async def test_the_doctor_says_when_the_last_backup_was_made_and_warns_of_an_old_one(shell, new, tmp_path):
    def found():
        checks = {each["name"]: each for each in json.loads(shell("doctor", new, "--json").stdout)}
        return checks["backup"]["state"], checks["backup"]["found"], checks["backup"]["fix"]

    assert found() == ("warn", "there is no backup yet", "`butlers backup DIR FILE` makes one.")
    assert shell("backup", new, tmp_path / "b").returncode == 0
    state, message, _ = found()
    assert (state, message.startswith("the last backup is from 20")) == ("ok", True)
    async with connected(dsn(shell, new)) as connection:
        moments = "started_at = now() - interval '31 days', finished_at = now() - interval '31 days'"
        await connection.execute(f"update job_runs set {moments} where job = 'backup'")
    assert found()[0] == "warn"


async def test_a_backup_is_of_one_moment_while_the_butler_is_written_to(shell, full, tmp_path, new):
    place, opened, _ = full
    caller = opened.new_caller()
    stopping = asyncio.Event()

    async def write() -> int:
        number = 0
        while not stopping.is_set():
            number += 1
            await opened.call(caller, "memory_store_fact", "Ada", f"note_{number}", f"note {number}")
        return number

    writing = asyncio.create_task(write())
    done = await asyncio.to_thread(shell, "backup", place, tmp_path / "b")
    stopping.set()
    written_in_all = await writing
    assert done.returncode == 0, done.stderr
    assert shell("restore", new, tmp_path / "b").returncode == 0
    async with connected(dsn(shell, new)) as connection:
        facts = await connection.fetchval("select count(*) from facts where tenant_id = $1", caller.tenant)
        events = await connection.fetchval("select count(*) from memory_events where tenant_id = $1", caller.tenant)
    assert facts == events <= written_in_all


def dump_without_migrating(dsn, file):
    """Write a backup with pg_dump, because `butlers backup` migrates first."""
    dump = [str(embedded_server.program_path("pg_dump")), "--format=custom", "--no-owner", "--no-privileges"]
    subprocess.run([*dump, f"--file={file}", f"--dbname={dsn}"], check=True)
    return file


async def test_a_backup_from_before_the_schema_was_folded_is_refused(shell, new, tmp_path, environment):
    old = write_butler(tmp_path, f"t{uuid4().hex[:12]}")
    assert shell("migrate", old).returncode == 0
    async with app.locate_database(app.load_configuration(old), environment) as location:
        async with connected(location.admin_dsn) as connection:
            await connection.execute("drop function enable_tenant_isolation(regclass, boolean)")
        file = dump_without_migrating(location.admin_dsn, tmp_path / "b")
    refused = shell("restore", new, file)
    assert refused.returncode == 1
    assert "an earlier development version of butlers. Run `butlers memory export DIR FILE`" in refused.stderr
    async with connected(dsn(shell, new)) as connection:
        assert await connection.fetchval("select count(*) from facts") == 0, "and the new database is as it was"


async def test_a_backup_of_an_older_version_is_brought_up_to_date(shell, new, tmp_path, environment):
    old = write_butler(tmp_path, f"t{uuid4().hex[:12]}")
    assert shell("memory", "store-rule", old, "Be kind").returncode == 0
    async with app.locate_database(app.load_configuration(old), environment) as place:
        await migrate.downgrade(place.admin_dsn, MEMORY, "mem_004", branches=(CORE, MEMORY), owner=place.owner)
        file = dump_without_migrating(place.admin_dsn, tmp_path / "b")
    restored = shell("restore", new, file, "--json")
    assert restored.returncode == 0, restored.stderr
    assert {"branch": "memory", "from": "mem_004", "to": MEMORY.head} in json.loads(restored.stdout)["schema"]
    (found,) = json.loads(shell("memory", "search", new, "kind", "--json").stdout)
    assert found["content"] == "Be kind"
