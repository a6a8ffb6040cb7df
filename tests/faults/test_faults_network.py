"""Idle and slow connections (row 41), floods of every method and of large bodies (row 42), beside a second tenant."""

import asyncio
import contextlib
import json
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from butlers import embedded_server
from butlers.host.api_keys import NewKey, create_key
from database.butler_processes import Process, Processes, connected, new_name, write_folder

KEYS = '[butler.auth]\nmode = "keys"\n'
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
# `ulimit -n` for the butler.
LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.executable, [sys.executable, "-m", "butlers.cli", "run", *sys.argv[2:], "--port", "0"])
"""


@dataclass
class Attacked:
    """A butler in its own process, with keys of two tenants."""

    process: Process
    url: str
    loud: str
    quiet: str
    clients: httpx2.AsyncClient
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    async def post(self, key: str, body: bytes) -> httpx2.Response:
        return await self.clients.post(
            f"{self.url}/mcp", headers={**JSON, "Authorization": f"Bearer {key}"}, content=body
        )

    async def search(self) -> float:
        """Search as the quiet tenant, on a new connection; return the seconds it took."""
        started = time.monotonic()
        async with httpx2.AsyncClient(timeout=30) as client:
            headers = {**JSON, "Authorization": f"Bearer {self.quiet}"}
            body = message("tools/call", name="memory_search", arguments={"query": "tea"})
            answer = await client.post(f"{self.url}/mcp", headers=headers, content=body)
        assert not answer.json()["result"]["isError"]
        return time.monotonic() - started

    async def health(self) -> float:
        started = time.monotonic()
        async with httpx2.AsyncClient(timeout=30) as client:
            assert (await client.get(f"{self.url}/health")).status_code == 200
        return time.monotonic() - started

    async def flood(self, body: bytes, until: asyncio.Event) -> None:
        """Send the body as the loud tenant, again and again, and count the answers."""
        while not until.is_set():
            answer = await self.post(self.loud, body)
            self.answers[_outcome(answer)] += 1


def _outcome(answer: httpx2.Response) -> str:
    if answer.status_code != 200:
        return str(answer.status_code)
    error = answer.json().get("error", {}).get("message", "ok")
    return str(error).partition(":")[0]


def message(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


@contextlib.asynccontextmanager
async def attacked(
    processes: Processes,
    cluster: embedded_server.Cluster,
    home: Path,
    tmp_path: Path,
    extra: str = "",
    files: int = 512,
) -> AsyncIterator[Attacked]:
    name = new_name()
    folder = write_folder(tmp_path, KEYS + extra, name=name, probe=False)
    process = processes.python("-c", LIMITED, str(files), str(folder), BUTLERS_HOME=str(home))
    url = process.ready().removesuffix("/mcp")
    async with connected(cluster.dsn(f"butler_{name}")) as owner:
        loud, quiet = [(await create_key(owner, NewKey(tenant=each, actor=each)))[1] for each in ("loud", "quiet")]
    async with httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=100)) as clients:
        butler = Attacked(process, url, loud, quiet, clients)
        await butler.search()
        yield butler


@contextlib.contextmanager
def idle_connections(port: int, number: int, start: bytes):
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            with contextlib.suppress(OSError):
                each = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
                each.send(start)
        yield


HALF_BODY = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"


@pytest.mark.parametrize("start", [b"P", HALF_BODY], ids=["one byte", "half a body"])
async def test_row_41_idle_connections_keep_nobody_out(processes, cluster, home, tmp_path, start):
    async with attacked(processes, cluster, home, tmp_path, files=256) as butler:
        with idle_connections(butler.port, 300, start):
            for _ in range(3):
                assert await butler.health() < 3
                assert await butler.search() < 3
        log = butler.process.err.read_text()
    assert log.count("the limit of connections is reached") == 1


async def test_row_41_a_butler_that_can_open_no_more_files_says_so(processes, cluster, home, tmp_path):
    async with attacked(processes, cluster, home, tmp_path, files=40) as butler:
        with idle_connections(butler.port, 60, b"P"):
            await asyncio.sleep(0.5)
        assert "can't accept connections: too many open files" in butler.process.err.read_text()
        assert await butler.search() < 5


SLOW_RATE = "[butler.limits]\ncalls_per_second = 20\nburst = 40\n"
METHODS = ("tools/list", "ping", "resources/list", "prompts/list", "nothing/known")


@pytest.mark.slow
async def test_row_42_a_flood_of_every_method_is_refused_and_leaves_another_tenant_its_pace(
    processes, cluster, home, tmp_path
):
    async with attacked(processes, cluster, home, tmp_path, SLOW_RATE) as butler:
        durations = await _search_beside(butler, [message(method) for method in METHODS] * 4)
    assert butler.answers["overloaded"] > butler.answers["ok"] + butler.answers["Method not found"]
    assert set(butler.answers) == {"ok", "overloaded", "Method not found"}
    assert max(durations) < 3


MEGABYTES = 3_800_000
LARGE = {
    "one text": message("tools/call", name="memory_recall", arguments={"topic": "x" * MEGABYTES}),
    "escapes": message("tools/call", name="memory_recall", arguments={"topic": '"\\' * (MEGABYTES // 4)}),
    "numbers": b'{"a": [' + b"1," * (MEGABYTES // 2) + b"1]}",
    "objects": b"[" + b'{"a":{}},' * (MEGABYTES // 9) + b"1]",
    "objects in a call": message("tools/call", name="memory_recall", arguments={"topic": [{"a": 1}] * 370_000}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LARGE)
async def test_row_42_a_flood_of_large_bodies_leaves_another_tenant_its_pace(
    processes, cluster, home, tmp_path, kind
):
    async with attacked(processes, cluster, home, tmp_path) as butler:
        durations = await _search_beside(butler, [LARGE[kind]] * 4)
    assert set(butler.answers) <= {"ok", "413", "429"}
    assert butler.answers["429"], "most are refused before they are read"
    assert max(durations) < 3


async def _search_beside(butler: Attacked, bodies: list[bytes]) -> list[float]:
    """Return the seconds of ten searches of the quiet tenant while the loud one sends these bodies."""
    done = asyncio.Event()
    flooding = [asyncio.create_task(butler.flood(body, done)) for body in bodies]
    await asyncio.sleep(0.5)
    durations = [await butler.search() for _ in range(10)]
    done.set()
    await asyncio.gather(*flooding)
    return durations
