"""Bench harness: temporary butlers, tool calls over HTTP, and generated memories with realistic vectors."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import numpy as np
from pgvector.asyncpg import register_vector

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.environment import Environment
from butlers.modules.memory.domain.model import MemoryType, NewFact, SearchMode
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.operations import reading, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory

SEEDS = 3_000
Vectors = np.ndarray[Any, Any]
ToolCall = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
_HEADERS = {"Accept": "application/json, text/event-stream"}
_CHUNK = 20_000
_TOPICS = (
    "coffee tea breakfast recipe kitchen garden dog cat walk doctor allergy sleep running bicycle train flight hotel "
    "meeting project deadline invoice budget contract server database backup password school teacher birthday gift "
    "music guitar concert film book library museum river mountain winter summer rain sister brother cousin neighbour"
).split()
_VERBS = (
    "likes avoids owns plans wants fears bought sold lost found visits repairs teaches studies plays cooks".split()
)
_ADJECTIVES = "red blue green quiet loud early late cheap costly small large old new warm cold local foreign".split()
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


@contextlib.asynccontextmanager
async def bench_butler(
    name: str = "bench", tenant: str = "default"
) -> AsyncIterator[tuple[Butler, Memory, Environment]]:
    """A butler on its own embedded server; both are deleted afterwards. The tenant is that of its callers."""
    home = Path(tempfile.mkdtemp(prefix="butlers-bench-", dir=os.environ.get("BENCH_TMP")))
    home.chmod(0o755)
    os.environ["BUTLERS_HOME"] = str(home)
    folder = home / "butler"
    folder.mkdir()
    (folder / "butler.toml").write_text(
        f'[butler]\nname = "{name}"\nport = 0\n'
        "[butler.limits]\ncalls_per_second = 1000000.0\nburst = 1000000\n"
        f'[butler.auth]\ntenant = "{tenant}"\n'
        "[modules.memory]\nenabled = true\n"
    )
    environment = Environment(home, None, None, "warning", "console")
    try:
        async with app.open_butler(app.load_configuration(folder), environment) as butler:
            module = butler.modules[0]
            assert isinstance(module, MemoryModule)
            yield butler, module.state, environment
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.asynccontextmanager
async def http_butler(butler: Butler) -> AsyncIterator[ToolCall]:
    """The same butler in its own process, called over HTTP."""
    folder = str(butler.config.folder)
    async with _http_server([sys.executable, "-m", "butlers.cli", "run", folder, "--port", "0"]) as call:
        yield call


@contextlib.asynccontextmanager
async def empty_server() -> AsyncIterator[ToolCall]:
    """A server with one tool that does nothing, called over HTTP."""
    async with _http_server([sys.executable, str(Path(__file__).with_name("empty_server.py"))]) as call:
        yield call


@contextlib.asynccontextmanager
async def _http_server(command: Sequence[str]) -> AsyncIterator[ToolCall]:
    """Start a server that prints `ready: URL`; yields a minimal client for its tools."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert process.stderr is not None
    try:
        address = ""
        while not address.startswith("ready: "):
            address = (await asyncio.to_thread(process.stderr.readline)).strip()
        async with httpx2.AsyncClient() as client:

            async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
                params = {"name": tool, "arguments": arguments}
                request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
                url = address.removeprefix("ready: ")
                response = await client.post(url, json=request, headers=_HEADERS, timeout=30)
                message: dict[str, Any] = json.loads(response.text)
                if "error" in message or message["result"].get("isError"):
                    raise RuntimeError(response.text[:500])
                return message

            yield call
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        process.stderr.close()


def sentence(rng: random.Random) -> str:
    """Ten words: four common ones, and six made-up ones that are mostly rare, as in real texts."""
    words = [rng.choice(_VERBS), rng.choice(_ADJECTIVES), *rng.sample(_TOPICS, 2)]
    return " ".join([*words, *(_word(int(20_000 ** rng.random())) for _ in range(6))])


def _word(rank: int) -> str:
    """The made-up word of that rank."""
    syllables = []
    while rank:
        rank, index = divmod(rank, len(_SYLLABLES))
        syllables.append(_SYLLABLES[index])
    return "".join(syllables)


async def seed_vectors(memory: Memory, rng: random.Random, count: int = SEEDS) -> Vectors:
    """The model's vectors of generated sentences."""
    vectors = await memory.embedder.embed_batch([sentence(rng) for _ in range(count)])
    return np.asarray(vectors, dtype=np.float32)


def interpolate(seeds: Vectors, count: int, rng: np.random.Generator) -> Vectors:
    """Vectors between pairs of real ones: any number of them, distributed like real ones."""
    left, right = seeds[rng.integers(0, len(seeds), count)], seeds[rng.integers(0, len(seeds), count)]
    share = rng.uniform(0.2, 0.8, (count, 1)).astype(np.float32)
    mixed = left * share + right * (1 - share) + rng.normal(0, 0.01, (count, seeds.shape[1])).astype(np.float32)
    normalised: Vectors = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return normalised


async def fill_facts(
    butler: Butler, memory: Memory, tenants: Sequence[tuple[str, int]], seeds: Vectors, *, mixed: bool
) -> float:
    """Insert the given number of facts for each tenant by COPY; returns the seconds. Mixed: in random order."""
    started = time.perf_counter()
    owner = await asyncpg.connect(butler.location.admin_dsn)
    await register_vector(owner)
    rng, words = np.random.default_rng(7), random.Random(7)
    version = memory.embedder.version
    names = [name for name, count in tenants for _ in range(count)]
    if mixed:
        rng.shuffle(names)
    for name, _ in tenants:
        await owner.execute(
            "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, $3, $4, $5)"
            " on conflict do nothing",
            name, version.id, version.model, version.version, version.dimensions,
        )  # fmt: skip
    await owner.execute("create temporary table arriving (tenant_id text, n integer, content text, embedding vector)")
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        vectors = interpolate(seeds, len(chunk), rng)
        rows = [
            (name, start + i, sentence(words), vector)
            for i, (name, vector) in enumerate(zip(chunk, vectors, strict=True))
        ]
        await owner.copy_records_to_table(
            "arriving", records=rows, columns=("tenant_id", "n", "content", "embedding")
        )
        await owner.execute(_INSERT_FACTS, version.id)
        await owner.execute("truncate arriving")
    await owner.execute("vacuum analyze facts", timeout=1800)
    await owner.close()
    return time.perf_counter() - started


_INSERT_FACTS = """
    insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, search_vector,
                       importance, last_referenced_at)
    select tenant_id, 'person ' || n % 97, 'note_' || n, content, embedding, $1,
           to_tsvector('english', 'person ' || n % 97 || ' note_' || n || ' ' || content),
           n % 10, now() - make_interval(hours => n % 900)
      from arriving
"""


async def age_facts(owner: "asyncpg.Connection[Any]", tenants: Sequence[str]) -> None:
    """Make the facts of these tenants so old that a sweep marks them as fading."""
    await owner.execute(
        "update facts set last_confirmed_at = now() - interval '250 days' where tenant_id = any ($1)",
        tenants,
        timeout=7200,
    )
    await owner.execute("vacuum analyze facts", timeout=3600)
    await owner.execute("checkpoint")


async def insert_expired_episodes(
    memory: Memory, owner: "asyncpg.Connection[Any]", tenant: str, vector: Vectors, count: int
) -> None:
    """Insert consolidated episodes that have expired."""
    await owner.execute(
        """
        insert into episodes (tenant_id, butler, content, embedding, embedding_version_id, search_vector,
                              consolidation_status, expires_at)
        select $1, 'bench', 'episode ' || n, $2::text::vector, $3, to_tsvector('english', 'episode ' || n),
               'consolidated', now() - interval '1 hour'
          from generate_series(1, $4) n
        """,
        tenant, str([float(number) for number in vector]), memory.embedder.version.id, count, timeout=3600,
    )  # fmt: skip
    await owner.execute("vacuum analyze episodes", timeout=3600)


async def search(
    memory: Memory,
    caller: Caller,
    text: str,
    *,
    types: Sequence[MemoryType] = tuple(MemoryType),
    mode: SearchMode = SearchMode.HYBRID,
    limit: int = 10,
    min_confidence: float = 0.2,
) -> list[dict[str, Any]]:
    """Search below the protocol; hybrid and over all types by default."""
    return await reading.search(
        memory, caller, text, types=types, scope=None, mode=mode, limit=limit, min_confidence=min_confidence
    )


async def recall(memory: Memory, caller: Caller, topic: str, limit: int = 10) -> list[dict[str, Any]]:
    """Recall facts and rules below the protocol."""
    types = (MemoryType.FACT, MemoryType.RULE)
    return await reading.recall(memory, caller, topic, scope=None, limit=limit, types=types)


async def store_fact(memory: Memory, caller: Caller, fact: NewFact) -> dict[str, Any]:
    """Store a fact below the protocol."""
    return await writing.store_fact(memory, caller, fact, Request("bench", {}))


def note(text: str) -> NewFact:
    """A new fact with that content."""
    return NewFact(subject=text[:60], predicate="note", content=text)


async def duration(work: Awaitable[object]) -> float:
    """Seconds until the work is done."""
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def durations(work: Callable[[int], Awaitable[object]], repeats: int) -> list[float]:
    """Seconds of each of several runs; the work gets the number of the run."""
    return [await duration(work(number)) for number in range(repeats)]


def caller_for(tenant: str, butler: Butler) -> Caller:
    """A caller of that tenant."""
    return Caller(tenant=tenant, butler=butler.config.butler.name, actor="bench")
