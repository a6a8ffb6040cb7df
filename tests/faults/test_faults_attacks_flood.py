"""Load tests: a flood of calls by one tenant does not slow down another."""

import asyncio
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from butlers import embedded_server
from butlers.host.api_keys import NewKey, create_key
from database.butler_processes import connected, new_name, write_folder

FLOODERS, QUIET_CALLS = 20, 8
LIMITS = '[butler.auth]\nmode = "keys"\n[butler.limits]\ncalls_per_second = 20\nburst = 40\n'
BENCH = Path(__file__).parents[2] / "bench"


@pytest.mark.slow
async def test_a_flood_of_one_tenant_is_overloaded_at_worst_and_another_keeps_its_pace(
    home, cluster: embedded_server.Cluster, tmp_path, processes
):
    name = new_name()
    butler = processes.butler(write_folder(tmp_path, LIMITS, name=name, probe=False), home, "--port", "0")
    address = butler.ready()
    async with connected(cluster.dsn(f"butler_{name}")) as owner:
        keys = [(await create_key(owner, NewKey(tenant=each, actor=each)))[1] for each in ("loud", "quiet")]
    done = asyncio.Event()
    answers: Counter[str] = Counter()
    durations: list[float] = []

    async def call(client: httpx2.AsyncClient, key: str, tool: str, **arguments) -> str:
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
        answer = await client.post(address, json=message, headers=headers)
        if answer.status_code != 200:
            return f"{answer.json()['error'].partition(':')[0]}"
        result = answer.json()["result"]
        return result["content"][0]["text"].partition(":")[0] if result["isError"] else "ok"

    async def flood() -> None:
        async with httpx2.AsyncClient(timeout=60) as client:
            while not done.is_set():
                answers[await call(client, keys[0], "memory_recall", topic="tea and coffee")] += 1

    async with httpx2.AsyncClient(timeout=60) as quiet:
        assert await call(quiet, keys[1], "memory_recall", topic="warm up") == "ok"
        flooding = [asyncio.create_task(flood()) for _ in range(FLOODERS)]
        while len(durations) < QUIET_CALLS:
            started = time.monotonic()
            assert await call(quiet, keys[1], "memory_recall", topic="tea") == "ok"
            durations.append(time.monotonic() - started)
        done.set()
        await asyncio.gather(*flooding)
    assert set(answers) <= {"ok", "overloaded"}
    assert statistics.median(durations) < 5


@pytest.mark.slow
def test_fifty_clients_at_once_lose_nothing_and_meet_no_error_but_overloaded():
    result = subprocess.run(
        [sys.executable, str(BENCH / "load.py"), "--seconds", "5", "--check"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
