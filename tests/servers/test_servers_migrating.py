"""Migrations beside running butlers: short locks, additions only, and an older butler that serves on."""

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import httpx2
import pytest

from butlers import app, migrate, provision
from butlers.host import api_keys
from butlers.migrate import Branch
from database.butler_processes import eventually, write_folder
from servers.next_release import write_next_release

KEYS = '[butler.auth]\nmode = "keys"\n'
HEADERS = {"Accept": "application/json, text/event-stream"}


@dataclass
class Load:
    """Calls with a key, one after another, that go on until they are stopped."""

    address: str
    key: str
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    async def call(self, client: httpx2.AsyncClient, number: int) -> None:
        arguments = {"subject": f"user {number}", "predicate": "is", "content": f"here {number}"}
        params = {"name": "memory_store_fact", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        started = time.monotonic()
        answer = await client.post(
            self.address, json=message, headers=HEADERS | {"Authorization": f"Bearer {self.key}"}
        )
        self.seconds.append(time.monotonic() - started)
        if answer.status_code != 200 or answer.json()["result"].get("isError"):
            self.failures.append(f"{answer.status_code} {answer.text[:300]}")

    @asynccontextmanager
    async def running(self, callers: int = 3):
        async def go_on(first: int) -> None:
            async with httpx2.AsyncClient(timeout=60) as client:
                number = first
                while True:
                    await self.call(client, number)
                    number += callers
                    await asyncio.sleep(0.02)

        tasks = [asyncio.create_task(go_on(first)) for first in range(callers)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(scope="module")
def next_release(tmp_path_factory) -> Path:
    return write_next_release(tmp_path_factory.mktemp("next"))


@pytest.mark.slow
async def test_row_58_an_older_butler_serves_on_while_and_after_the_next_release_migrates(
    home, environment, processes, next_release, tmp_path
):
    """A reader such as pg_dump holds every table for some seconds: the migration waits, and nobody behind it."""
    folder = write_folder(tmp_path, KEYS, probe=False)
    old = processes.butler(folder, home)
    address = old.ready()
    config = app.load_configuration(folder)
    location = await provision.locate(config, environment)
    async with location.owner_connection() as owner:
        _, key = await api_keys.create_key(owner, api_keys.NewKey(tenant="acme", actor="robot"))
    load = Load(address, key)
    reader = await asyncpg.connect(location.admin_dsn, server_settings={"application_name": "nightly dump"})
    async with load.running():
        await eventually(lambda: _has(load, 5), "the first calls, which load the model")
        load.seconds.clear()
        reading = reader.transaction()
        await reading.start()
        await reader.execute("lock table facts, rules, episodes, api_keys in access share mode")
        migrating = processes.python(
            "-m", "butlers.cli", "migrate", str(folder), BUTLERS_HOME=str(home), PYTHONPATH=str(next_release)
        )

        async def has_waited_twice() -> bool:
            return migrating.err.read_text().count("the migration waits") >= 2

        await eventually(has_waited_twice, "the migration to step back", 60)
        assert "nightly dump of postgres" in migrating.err.read_text()
        await reading.rollback()
        assert await asyncio.to_thread(migrating.popen.wait, 60) == 0, migrating.err.read_text()
        after = len(load.seconds)
        await eventually(lambda: _has(load, after + 20), "calls after the migration")
    await reader.close()
    await location.release(stop=False)
    assert load.failures == []
    assert max(load.seconds) < 3, "everybody else queued behind the migration"
    assert "Traceback" not in old.err.read_text()


async def _has(load: Load, calls: int) -> bool:
    return len(load.seconds) >= calls


async def test_a_migration_that_never_gets_its_tables_says_who_uses_them(server_of, tmp_path):
    server = server_of("18")
    await server.run("create database locked")
    folder = tmp_path / "migrations"
    (folder / "sql").mkdir(parents=True)
    (folder / "slow_001_more.py").write_text(
        'from alembic import op\nrevision = "slow_001"\ndown_revision = None\nbranch_labels = ("slow",)\n'
        'depends_on = None\ndef upgrade():\n    op.execute("alter table things add column more text")\n'
    )
    await server.run("create table things (id int)", "create role locked_app", database="locked")
    branch = Branch(label="slow", location=folder, head="slow_001")
    reader = await asyncpg.connect(server.socket_url("locked"), server_settings={"application_name": "a long report"})
    async with reader.transaction():
        await reader.execute("select * from things")
        with pytest.raises(
            migrate.TablesInUse, match=r"a long report of postgres \(pid \d+\) has used things"
        ) as found:
            await migrate.upgrade(server.socket_url("locked"), [branch], app_role="locked_app", lock_seconds=1.5)
        assert "slow_001 needs tables" in found.value.message
        assert "Nothing was changed" in found.value.hint
    await reader.close()
    done = await migrate.upgrade(server.socket_url("locked"), [branch], app_role="locked_app")
    assert done.after == {"slow": "slow_001"}
