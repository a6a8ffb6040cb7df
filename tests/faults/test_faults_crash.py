"""A crash of PostgreSQL under load (row 7): no acknowledged memory is lost."""

import asyncio
import os
import signal

import asyncpg
import pytest
from fastmcp import Client

from database.butler_processes import eventually, new_name, write_folder

WRITERS = 8


@pytest.mark.slow
async def test_row_07_a_crash_of_the_server_under_load_loses_no_acknowledged_memory(own_home, tmp_path, processes):
    name = new_name()
    butler = processes.butler(write_folder(tmp_path, name=name, probe=False), own_home, "--port", "0")
    address = butler.ready()
    acknowledged: set[str] = set()
    stopping = asyncio.Event()

    async def write(writer: int) -> None:
        async with Client(address) as client:
            number = 0
            while not stopping.is_set():
                number += 1
                fact = {"subject": f"writer {writer}", "predicate": f"note_{number}", "content": f"note {number}"}
                answer = await client.call_tool("memory_store_fact", fact, raise_on_error=False)
                if not answer.is_error:
                    acknowledged.add(answer.structured_content["id"])

    writing = [asyncio.create_task(write(writer)) for writer in range(WRITERS)]

    def after(count: int):
        async def reached() -> bool:
            return len(acknowledged) >= count

        return eventually(reached, f"{count} memories to be acknowledged", seconds=40)

    await after(40)
    postmaster = int((own_home / "postgres/data/postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGKILL)
    before = len(acknowledged)
    await after(before + 40)
    stopping.set()
    await asyncio.gather(*writing)

    connection = await asyncpg.connect(f"postgresql://postgres@/butler_{name}?host={own_home}/postgres/data")
    stored = {str(row["id"]) for row in await connection.fetch("select id from facts where validity = 'active'")}
    events = await connection.fetchval("select count(*) from memory_events where event_type = 'fact_created'")
    await connection.close()
    assert acknowledged <= stored
    assert events == len(stored)
