"""Locks that are never released, and programs and models that never answer (row 56)."""

import asyncio
import fcntl
import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import pytest

from butlers import backup_file, embedded_server, provision
from butlers.db import translate_errors
from butlers.errors import TimedOut, Unavailable
from butlers.host.runtimes import process
from butlers.modules.memory.module import MemoryModule
from database.butler_processes import connected, new_name


@pytest.fixture
async def database(cluster: embedded_server.Cluster):
    """The URI of a new database, as its superuser."""
    name = new_name()
    async with connected(cluster.dsn("postgres")) as connection:
        await connection.execute(f"create database {name}")
    yield cluster.dsn(name)
    async with connected(cluster.dsn("postgres")) as connection:
        await connection.execute(f"drop database {name} with (force)")


def test_row_56_a_lock_of_the_embedded_server_is_not_waited_for_without_end(tmp_path: Path):
    path = tmp_path / "start.lock"
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(Unavailable, match="another process starts or stops the embedded PostgreSQL server"),
            embedded_server._exclusive_lock(path, 0.2),
        ):
            pass
    with embedded_server._exclusive_lock(path, 0.2):
        pass


async def test_row_56_a_database_that_another_process_prepares_is_not_waited_for_without_end(cluster):
    name = new_name()
    async with connected(cluster.dsn("postgres")) as other:
        await other.execute("select pg_advisory_lock(hashtextextended($1, 1))", name)
        started = time.monotonic()
        with pytest.raises(TimedOut), translate_errors():
            async with provision.open_connection(cluster.dsn("postgres"), command_seconds=0.5) as connection:
                await provision._create_database(connection, name)
        assert time.monotonic() - started < 5


async def test_row_56_a_locked_table_ends_a_backup(database, tmp_path):
    async with connected(database) as other:
        await other.execute("create table held (a int)")
        async with other.transaction():
            await other.execute("lock table held in access exclusive mode")
            with (tmp_path / "b.backup").open("wb") as file, pytest.raises(Unavailable, match="pg_dump failed: "):
                await backup_file.write_backup(database, file, is_embedded=True, lock_seconds=0.5)


async def test_row_56_a_silent_pg_dump_is_ended(database, tmp_path):
    async with connected(database) as other:
        await other.execute("create table held (a int)")
        async with other.transaction():
            await other.execute("lock table held in access exclusive mode")
            with (
                (tmp_path / "b.backup").open("wb") as file,
                pytest.raises(Unavailable, match="wrote nothing for 1 s"),
            ):
                await backup_file.write_backup(database, file, is_embedded=True, silence_seconds=1)


async def test_row_56_the_revisions_of_a_backup_are_few(database, tmp_path):
    """A small file that holds much: a gigabyte of text compresses to a megabyte."""
    async with connected(database) as connection:
        await connection.execute("create table alembic_version (version_num text)")
        await connection.execute(
            "insert into alembic_version select repeat('a', 1000000) from generate_series(1, 20)"
        )
    path = tmp_path / "b.backup"
    with path.open("wb") as file:
        assert await backup_file.write_backup(database, file, is_embedded=True) < 1_000_000
    backup = await backup_file.open_backup(path)
    with pytest.raises(backup_file.ForeignBackup, match="more revisions of the schema than there are"):
        await backup.revisions()


def test_row_56_a_session_does_not_wait_for_a_sweep_that_hangs(tmp_path: Path):
    specification = importlib.util.spec_from_file_location("guard", process._GUARD)
    assert specification
    assert specification.loader
    guard = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(guard)
    (tmp_path / "sweep.py").write_text("import time\ntime.sleep(60)\n")
    vars(guard).update(_SWEEP=tmp_path / "sweep.py", _SWEEP_TIMEOUT_SECONDS=0.5)
    started = time.monotonic()
    guard._kill_marked_processes()
    assert time.monotonic() - started < 10


class SilentEmbedder:
    """An embedder that never answers."""

    def __init__(self, version) -> None:
        self.version = version

    async def embed(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()


async def test_row_56_the_doctor_does_not_wait_for_a_model_that_hangs(memory):
    module = MemoryModule()
    module._memory = replace(memory, embedder=SilentEmbedder(memory.embedder.version))
    check = await module._check_model(0.2)
    assert (check.state, check.found) == ("fail", "the embedding model did not answer within 0.2 s")
