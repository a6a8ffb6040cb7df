"""Synchronous replication: no write and no repeated request is acknowledged before a standby has it."""

import asyncio

import pytest

from butlers import app, db
from butlers.app import Butler
from database.butler_processes import Served, eventually
from servers.conftest import INSTALLATIONS
from servers.replication import SYNCHRONOUS, replicated
from servers.site import new_site
from servers.test_servers_failover import serve

BRIEF = "[butler.limits]\ndrain_seconds = 0\ncall_timeout_seconds = 3\n"


@pytest.fixture
def pair():
    with replicated(INSTALLATIONS["16"], SYNCHRONOUS) as pair:
        yield pair


async def is_stored(served: Served, rule: dict[str, str]) -> bool:
    return not (await served.call("memory_store_rule", **rule)).is_error


async def test_row_62_a_repeated_key_waits_for_the_standby_as_the_first_request_does(pair, processes, tmp_path):
    site = await new_site(pair.primary, tmp_path, extra=BRIEF)
    served = await asyncio.to_thread(serve, site, processes)
    rule = {"content": "Be brief.", "idempotency_key": "once"}
    await eventually(lambda: is_stored(served, {"content": "Load the model."}), "the model to be loaded")
    pair.standby.control("--mode=immediate", "stop")
    first = await served.call("memory_store_rule", **rule)
    assert first.is_error, first
    assert await served.fetch_value("select count(*) from rules where content = 'Be brief.'") == 1
    repeated = await served.call("memory_store_rule", **rule)
    assert repeated.is_error, "the answer was given before a standby had the rule"
    pair.standby.start()
    await eventually(lambda: is_stored(served, rule), "the standby to be back")
    await pair.catch_up()
    on_standby = "select count(*) from rules where content = 'Be brief.'"
    assert await pair.standby.fetch_value(on_standby, site.database) == 1


async def test_row_62_a_commit_that_the_server_stops_waiting_for_is_no_success(pair, tmp_path):
    """The server reports it as a warning only: whoever cancels the wait, the commit succeeds."""
    site = await new_site(pair.primary, tmp_path)
    waiting = "from pg_stat_activity where wait_event = 'SyncRep' and usename like 'butler%'"

    async def write(butler: Butler) -> None:
        async with butler.database.transaction(butler.caller()) as tx:
            await tx.execute("insert into rules (tenant_id, content) values ('default', 'unconfirmed')")

    async def is_waiting() -> bool:
        return bool(await pair.primary.fetch_value(f"select count(*) {waiting}"))

    async with app.open_butler(site.config, site.environment) as butler:
        pair.standby.control("--mode=immediate", "stop")
        writing = asyncio.create_task(write(butler))
        await eventually(is_waiting, "the commit to wait")
        await pair.primary.fetch_value(f"select count(pg_cancel_backend(pid)) {waiting}")
        with pytest.raises(db.CommitUnknown, match="no synchronous standby has confirmed it") as unknown:
            await writing
        assert "idempotency_key" in unknown.value.hint
        pair.standby.start()
        await write(butler)
        async with butler.database.transaction(butler.caller()) as tx:
            assert await tx.fetchval("select count(*) from rules") == 2
