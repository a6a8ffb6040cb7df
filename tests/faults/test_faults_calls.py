"""Calls over HTTP whose client, connection or database server dies (rows 4, 6, 7, 9, 10)."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from butlers import embedded_server
from database.butler_processes import Processes, Served, eventually, kill_postmaster, new_name, write_folder


@pytest.fixture(scope="module")
def served(home: Path, cluster: embedded_server.Cluster, tmp_path_factory) -> Iterator[Served]:
    """A butler with a single connection, so that a leaked one is noticed."""
    folder, name = tmp_path_factory.mktemp("served"), new_name()
    processes = Processes(folder)
    process = processes.butler(write_folder(folder, "[butler.database]\npool_size = 1", name=name), home, probe=True)
    yield Served(process, process.ready(), cluster.dsn(f"butler_{name}"))
    processes.end()


@pytest.fixture
async def before(served: Served) -> int:
    """The number of rows before the test."""
    return await served.rows()


_CLIENT = """
import asyncio, sys
from fastmcp import Client

async def call():
    async with Client(sys.argv[1], mode=sys.argv[2]) as client:
        await client.call_tool("probe_write", {"text": "half", "seconds": 30})

asyncio.run(call())
"""


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_row_04_a_client_killed_in_mid_call_leaves_no_row_and_no_open_transaction(
    served, before, processes, era
):
    client = processes.python("-c", _CLIENT, served.address, era)
    await eventually(served.is_writing, "the client's call to be under way")
    client.end(signal.SIGKILL)

    async def has_no_transaction() -> bool:
        return await served.open_transactions() == 0

    await eventually(has_no_transaction, "the transaction to be gone", seconds=5)
    assert await served.rows() == before
    answer = await served.call("probe_write", text="whole")
    assert answer.structured_content == {"rows": before + 1}


async def test_row_06_a_connection_ended_in_mid_call_is_unavailable_and_the_next_call_works(served, before):
    call = asyncio.create_task(served.call("probe_write", text="half", seconds=20))
    await eventually(served.is_writing, "the call to be under way")
    await served.fetch_value(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state = 'active'"
    )
    answer = await call
    assert answer.is_error
    assert answer.content[0].text == "unavailable: the database ended the connection. Retry in a few seconds."
    assert (await served.call("probe_write", text="whole")).structured_content == {"rows": before + 1}


async def test_row_09_a_full_pool_is_overloaded_and_a_slow_query_a_timeout(served, before):
    late = await served.call("probe_fail", how="slow query")
    assert late.content[0].text.startswith("timeout: the database took too long.")
    holding = asyncio.create_task(served.call("probe_write", text="first", seconds=3.5))
    await eventually(served.is_writing, "the pool's only connection to be taken")
    refused = await served.call("probe_write", text="second")
    assert refused.content[0].text.startswith("overloaded: every database connection is busy.")
    assert (await holding).structured_content == {"rows": before + 1}
    assert (await served.call("probe_write", text="third")).structured_content == {"rows": before + 2}


@pytest.mark.slow
async def test_row_07_a_server_crash_is_reported_and_recovery_needs_no_restart(own_home, tmp_path, processes):
    name = new_name()
    process = processes.butler(write_folder(tmp_path, name=name), own_home, probe=True)
    address = process.ready()
    cluster = embedded_server.acquire(own_home)
    served = Served(process, address, cluster.dsn(f"butler_{name}"))
    assert (await served.call("probe_write", text="kept")).structured_content == {"rows": 1}
    in_flight = asyncio.create_task(served.call("probe_write", text="half", seconds=20))
    await eventually(served.is_writing, "a call to be under way")

    kill_postmaster(own_home)
    assert (await in_flight).content[0].text.startswith("unavailable: ")
    status, health = await served.health()
    assert (status, health["status"]) == (503, "unavailable")
    assert "database" in health["reason"]
    down = await served.call("probe_write", text="down")
    assert down.content[0].text == "unavailable: the database can't be reached. Retry in a few seconds."

    again = embedded_server.acquire(own_home)
    assert (await served.call("probe_write", text="again")).structured_content == {"rows": 2}
    assert await served.health() == (200, {"status": "ready", "butler": name})
    assert process.popen.poll() is None
    again.release()
    cluster.release()
