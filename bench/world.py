"""A butler of the bench's own, filled with made-up memories whose vectors lie as real ones do."""

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
from butlers.modules.memory.module import MemoryModule
from butlers.modules.memory.runtime import Memory

SEEDS = 3_000
Call = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
_TOPICS = (
    "coffee tea breakfast recipe kitchen garden dog cat walk doctor allergy sleep running bicycle train flight hotel "
    "meeting project deadline invoice budget contract server database backup password school teacher birthday gift "
    "music guitar concert film book library museum river mountain winter summer rain sister brother cousin neighbour"
).split()
_VERBS = (
    "likes avoids owns plans wants fears bought sold lost found visits repairs teaches studies plays cooks".split()
)
_COLOURS = "red blue green quiet loud early late cheap costly small large old new warm cold local foreign".split()
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


@contextlib.asynccontextmanager
async def world(name: str = "bench", tenant: str = "default") -> AsyncIterator[tuple[Butler, Memory, Environment]]:
    """A running butler on an embedded server of its own; both go afterwards. Callers are of the tenant."""
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
async def served(butler: Butler) -> AsyncIterator[Call]:
    """The same butler in a process of its own, over HTTP."""
    folder = str(butler.config.folder)
    async with _answering([sys.executable, "-m", "butlers.cli", "run", folder, "--port", "0"]) as call:
        yield call


@contextlib.asynccontextmanager
async def empty_server() -> AsyncIterator[Call]:
    """A server whose one tool does nothing, over HTTP."""
    async with _answering([sys.executable, str(Path(__file__).with_name("empty.py"))]) as call:
        yield call


@contextlib.asynccontextmanager
async def _answering(command: Sequence[str]) -> AsyncIterator[Call]:
    """A way to call the tools of a server that says where it is, with as little client as possible."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220
    assert process.stderr is not None
    try:
        address = ""
        while not address.startswith("ready: "):
            address = (await asyncio.to_thread(process.stderr.readline)).strip()
        async with httpx2.AsyncClient() as client:

            async def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
                request = {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": tool, "arguments": arguments},
                }
                headers = {"Accept": "application/json, text/event-stream"}
                answer = await client.post(address.removeprefix("ready: "), json=request, headers=headers, timeout=30)
                told: dict[str, Any] = json.loads(answer.text)
                if "error" in told or told["result"].get("isError"):
                    raise RuntimeError(answer.text[:500])
                return told

            yield call
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        process.stderr.close()


def sentence(rng: random.Random) -> str:
    """Something a person might want remembered; common words are common and most words are rare, as in any text."""
    words = [rng.choice(_VERBS), rng.choice(_COLOURS), *rng.sample(_TOPICS, 2)]
    return " ".join([*words, *(_word(int(20_000 ** rng.random())) for _ in range(6))])


def _word(number: int) -> str:
    """A made-up word of that rank: the same for the same number."""
    syllables = []
    while number:
        number, rest = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[rest])
    return "".join(syllables)


async def seed_vectors(memory: Memory, rng: random.Random, count: int = SEEDS) -> "np.ndarray[Any, Any]":
    """The real model's vectors of made-up sentences."""
    vectors = await memory.embedder.embed_batch([sentence(rng) for _ in range(count)])
    return np.asarray(vectors, dtype=np.float32)


def like(seeds: "np.ndarray[Any, Any]", count: int, rng: "np.random.Generator") -> "np.ndarray[Any, Any]":
    """Vectors between real ones, so that there are as many as one likes and they still lie where real ones do."""
    left, right = seeds[rng.integers(0, len(seeds), count)], seeds[rng.integers(0, len(seeds), count)]
    share = rng.uniform(0.2, 0.8, (count, 1)).astype(np.float32)
    mixed = left * share + right * (1 - share) + rng.normal(0, 0.01, (count, seeds.shape[1])).astype(np.float32)
    normalised: np.ndarray[Any, Any] = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return normalised


async def fill(
    butler: Butler, memory: Memory, tenants: Sequence[tuple[str, int]], seeds: "np.ndarray[Any, Any]", *, mixed: bool
) -> float:
    """Facts of these tenants, written past the operations; seconds taken. Mixed: as if they came at the same time."""
    started = time.perf_counter()
    owner = await asyncpg.connect(butler.place.admin_dsn)
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
    for start in range(0, len(names), 20_000):
        part = names[start : start + 20_000]
        vectors = like(seeds, len(part), rng)
        rows = [
            (name, start + i, sentence(words), vector)
            for i, (name, vector) in enumerate(zip(part, vectors, strict=True))
        ]
        await owner.copy_records_to_table(
            "arriving", records=rows, columns=("tenant_id", "n", "content", "embedding")
        )
        await owner.execute(_ARRIVE, version.id)
        await owner.execute("truncate arriving")
    await owner.execute("vacuum analyze facts", timeout=1800)
    await owner.close()
    return time.perf_counter() - started


_ARRIVE = """
    insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, search_vector,
                       importance, last_referenced_at)
    select tenant_id, 'person ' || n % 97, 'note_' || n, content, embedding, $1,
           to_tsvector('english', 'person ' || n % 97 || ' note_' || n || ' ' || content),
           n % 10, now() - make_interval(hours => n % 900)
      from arriving
"""


async def aged(owner: "asyncpg.Connection[Any]", tenants: Sequence[str]) -> None:
    """Let the facts of these tenants be so old that a sweep lets them fade."""
    await owner.execute(
        "update facts set last_confirmed_at = now() - interval '250 days' where tenant_id = any ($1)",
        tenants,
        timeout=7200,
    )
    await owner.execute("vacuum analyze facts", timeout=3600)
    await owner.execute("checkpoint")


async def expired_episodes(
    memory: Memory, owner: "asyncpg.Connection[Any]", tenant: str, vector: "np.ndarray[Any, Any]", count: int
) -> None:
    """Consolidated episodes whose time is over."""
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


async def timed(work: Any, repeats: int) -> list[float]:
    """Seconds of each of several runs."""
    taken: list[float] = []
    for number in range(repeats):
        started = time.perf_counter()
        await work(number)
        taken.append(time.perf_counter() - started)
    return taken


def caller_of(tenant: str, butler: Butler) -> Caller:
    """Somebody of that tenant."""
    return Caller(tenant=tenant, butler=butler.config.butler.name, actor="bench")


def run(main: Any) -> None:
    """Run a bench."""
    asyncio.run(main())
