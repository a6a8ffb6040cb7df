"""Bench of the dashboard: server time and size of each page, its share of start and memory, cost of its indexes."""

import argparse
import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlencode

import asyncpg

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.config import AuthConfig
from butlers.dashboard.application import build_application
from butlers.dashboard.pages import ROUTES
from butlers.host.server import Server, http_app
from butlers.modules.memory.domain.model import NewEpisode, NewRule
from butlers.modules.memory.operations import index_upkeep, writing
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.runtime import Memory
from dashboard_data import Sizes, fill_tenant
from dashboard_start import start_tables
from harness import bench_butler, caller_for, note, seed_vectors, sentence, store_fact
from report import Report, Table
from statements import Statement, plain_connection, record_statements, replay

SMALL, LARGE = "small", "large"
MAX_MS, MAX_KB, MAX_RATIO, MAX_GROWTH = 50.0, 100.0, 3.0, 2.0
NOT_MEASURED = {
    "/live": "it streams until the page is closed",
    "/login": "it reads no memory",
    "/enter": "it reads no memory",
    "/tenants": "it reads the names of tenants only",
}
Samples = dict[tuple[str, str, str], list[float]]
"""Seconds by page, tenant and what was measured."""


@dataclass(frozen=True, slots=True)
class BenchPage:
    """A page by the pattern of its route; values in the path and query are names of ids or plain texts."""

    name: str
    route: str
    query: Mapping[str, str] = field(default_factory=dict)
    path_id: str = ""
    is_download: bool = False
    uses_model: bool = False
    counts_review: bool = False
    """Whether it counts what waits for review, as one page a minute does."""

    def path(self, ids: Mapping[str, str]) -> str:
        """The path and query with the ids of a tenant."""
        path = self.route.replace("{id:uuid}", ids.get(self.path_id, ""))
        query = {name: ids.get(value, value) for name, value in self.query.items()}
        return path + (f"?{urlencode(query)}" if query else "")


PAGES = (
    BenchPage("Overview", "/"),
    BenchPage("Overview, counting what waits", "/", counts_review=True),
    BenchPage("Review: fading", "/review", {"of": "fading"}),
    BenchPage("Review: distilled", "/review", {"of": "distilled"}),
    BenchPage("Review: harmful", "/review", {"of": "harmful"}),
    BenchPage("Review: twins", "/review", {"of": "twins"}),
    BenchPage("Review: dead letters", "/review", {"of": "dead-letters"}),
    BenchPage("Search", "/search", {"q": "QUESTION"}, uses_model=True),
    BenchPage("Search by an id", "/search", {"q": "FACT_BEGINNING"}),
    BenchPage("Facts", "/facts"),
    BenchPage("Facts: a later page", "/facts", {"before": "FACT_POSITION"}),
    BenchPage("Facts: in every state", "/facts", {"state": "all"}),
    BenchPage("Facts: of a scope", "/facts", {"scope": "work"}),
    BenchPage("Facts: of a subject", "/facts", {"subject": "person 7"}),
    BenchPage("Facts: of an entity", "/facts", {"entity": "HUB"}),
    BenchPage("Facts: with a frequent tag", "/facts", {"tag": "topic 5"}),
    BenchPage("Facts: with a rare tag", "/facts", {"tag": "seldom"}),
    BenchPage("Facts: confident ones", "/facts", {"min": "0.9"}),
    BenchPage("Facts: fading first", "/facts", {"sort": "fading"}),
    BenchPage("Facts: lowest confidence first", "/facts", {"sort": "confidence"}),
    BenchPage("Facts: most used first", "/facts", {"sort": "used"}),
    BenchPage("Facts: none found", "/facts", {"tag": "no such tag"}),
    BenchPage("Fact", "/facts/{id:uuid}", path_id="FACT"),
    BenchPage("Rules", "/rules"),
    BenchPage("Rules: of a group", "/rules", {"group": "candidate"}),
    BenchPage("Rule", "/rules/{id:uuid}", path_id="RULE"),
    BenchPage("Episodes", "/episodes"),
    BenchPage("Episodes: failed", "/episodes", {"state": "failed"}),
    BenchPage("Episodes: of a session", "/episodes", {"session": "SESSION"}),
    BenchPage("Episode", "/episodes/{id:uuid}", path_id="EPISODE"),
    BenchPage("Entities", "/entities"),
    BenchPage("Entities: by a beginning", "/entities", {"name": "ma"}),
    BenchPage("Entity with 300 facts", "/entities/{id:uuid}", path_id="HUB"),
    BenchPage("Entity", "/entities/{id:uuid}", path_id="ENTITY"),
    BenchPage("Merge: the choice", "/entities/merge", {"source": "ENTITY"}),
    BenchPage("Merge: the preview", "/entities/merge", {"source": "ENTITY", "target": "HUB"}),
    BenchPage("Retract a session", "/retract", {"session": "SESSION"}),
    BenchPage("Retract an episode", "/retract", {"episode": "EPISODE"}),
    BenchPage("Consolidation", "/consolidation"),
    BenchPage("Consolidation: a run", "/consolidation/{id:uuid}", path_id="REQUEST"),
    BenchPage("Consolidation: taking a run back", "/consolidation/{id:uuid}/take-back", path_id="REQUEST"),
    BenchPage("Consolidation: the prompts", "/consolidation/prompts"),
    BenchPage("Sessions", "/sessions"),
    BenchPage("Session", "/sessions/{id:uuid}", path_id="SESSION"),
    BenchPage("Undo of a call", "/undo", {"request": "REQUEST"}),
    BenchPage("Audit", "/audit"),
    BenchPage("Audit: of a type", "/audit", {"type": "fact_confirmed"}),
    BenchPage("Audit: of an actor", "/audit", {"actor": "local"}),
    BenchPage("Audit: of a memory", "/audit", {"memory": "FACT"}),
    BenchPage("Audit: of a request", "/audit", {"request": "REQUEST"}),
    BenchPage("Audit as a file", "/audit.csv", is_download=True),
    BenchPage("System", "/system"),
)


@dataclass(frozen=True, slots=True)
class Site:
    """The pages of one tenant, called without a network."""

    caller: Caller
    application: Any
    state: Any
    ids: Mapping[str, str]

    @property
    def tenant(self) -> str:
        """The name of the tenant."""
        return self.caller.tenant

    async def get(self, page: BenchPage) -> bytes:
        """The body of a page; raises `RuntimeError` if the answer is an error."""
        path, _, query = page.path(self.ids).partition("?")
        if page.counts_review:
            self.state.review_counts.forget(self.caller)
        return await _call(self.application, path, query)


async def _call(application: Any, path: str, query: str) -> bytes:
    parts: list[bytes] = []
    status = 0
    is_sent = False
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1:8101")],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8101),
    }

    async def receive() -> dict[str, Any]:
        nonlocal is_sent
        if is_sent:
            await asyncio.Event().wait()
        is_sent = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    await application(scope, receive, send)
    if status not in {200, 303}:
        raise RuntimeError(f"{path}?{query} answered {status}: {b''.join(parts)[-2000:].decode()}")
    return b"".join(parts)


@asynccontextmanager
async def open_sites(butler: Butler, tenants: Sequence[str]) -> AsyncIterator[list[Site]]:
    """The pages of each tenant, with its local caller."""
    owner = await asyncpg.connect(butler.location.admin_dsn)
    async with app.open_server(butler, with_jobs=False) as server:
        yield [_site(butler, server, tenant, await _ids(owner, tenant)) for tenant in tenants]
    await owner.close()


def _site(butler: Butler, server: Server, tenant: str, ids: Mapping[str, str]) -> Site:
    config = butler.config.butler.model_copy(update={"auth": AuthConfig(tenant=tenant)})
    own = replace(server, config=config)
    pages: Any = build_application(replace(butler, config=replace(butler.config, butler=config)), own)
    return Site(caller_for(tenant, butler), http_app(own, pages), pages.state, ids)


_IDS = {
    "FACT": "select md5($1 || ' fact 17')::uuid",
    "FACT_BEGINNING": "select left(md5($1 || ' fact 17'), 8)",
    "FACT_POSITION": "select to_char(created_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"') || '~' || id from facts"
    " where tenant_id = $1 and id = md5($1 || ' fact 300')::uuid",
    "RULE": "select md5($1 || ' rule 57')::uuid",
    "EPISODE": "select md5($1 || ' episode 42')::uuid",
    "SESSION": "select md5($1 || ' session 2')::uuid",
    "HUB": "select md5($1 || ' entity 0')::uuid",
    "ENTITY": "select md5($1 || ' entity 5')::uuid",
    "REQUEST": "select md5($1 || ' run 1')::uuid",
    "QUESTION": "select content from facts where tenant_id = $1 and id = md5($1 || ' fact 17')::uuid",
}


async def _ids(owner: Any, tenant: str) -> dict[str, str]:
    await owner.execute("set timezone to 'UTC'")
    return {name: str(await owner.fetchval(query, tenant)) for name, query in _IDS.items()}


@dataclass(frozen=True, slots=True)
class Recorded:
    """The statements of a page and the kilobytes of its answer."""

    statements: Sequence[Statement]
    kilobytes: float


async def record_pages(butler: Butler, sites: Sequence[Site], pages: Sequence[BenchPage]) -> dict[Any, Recorded]:
    """The statements and the size of each page in each tenant."""
    recorded = {}
    for page in pages:
        for site in sites:
            await site.get(page)
            async with record_statements(butler.database) as statements:
                body = await site.get(page)
            recorded[page.name, site.tenant] = Recorded(statements, len(body) / 1000)
    return recorded


async def measure_pages(
    butler: Butler, memory: Memory, sites: Sequence[Site], pages: Sequence[BenchPage], repeats: int
) -> tuple[Samples, dict[Any, Recorded]]:
    """Seconds of each page and of its statements; all take turns, so that a busy machine slows all of them."""
    recorded = await record_pages(butler, sites, pages)
    samples: Samples = defaultdict(list)

    async def timed(page: BenchPage, site: Site, part: str, work: Awaitable[object]) -> None:
        started = time.perf_counter()
        await work
        samples[page.name, site.tenant, part].append(time.perf_counter() - started)

    async with plain_connection(butler) as connection:
        for number in range(-2, repeats):
            if number == 0:
                samples.clear()
            for page in pages:
                for site in sites:
                    statements = list(recorded[page.name, site.tenant].statements)
                    await timed(page, site, "page", site.get(page))
                    await timed(page, site, "sql", replay(connection, statements))
                    if page.uses_model:
                        await timed(page, site, "model", memory.embedder.embed(site.ids["QUESTION"]))
    return samples, recorded


def page_table(
    samples: Samples, recorded: Mapping[Any, Recorded], pages: Sequence[BenchPage], repeats: int
) -> tuple[Table, dict[str, object]]:
    """The table of pages, and its numbers."""
    measured: dict[str, object] = {}
    rows, missed = [], []
    for page in pages:
        numbers = _numbers(samples, recorded, page)
        measured[page.name] = numbers
        missed += [f"{page.name} ({goal})" for goal in _missed_goals(page, numbers)]
        cells = [f"{numbers[key]:.1f}" for key in ("kb", "sql_small", "page_small")]
        cells += [f"{numbers['ratio_small']:.1f}×", f"{numbers['page_large']:.1f}", f"{numbers['ratio_large']:.1f}×"]
        rows.append([page.name, *cells, f"{numbers['growth']:.2f}×", f"{numbers['statements']:.0f}"])
    note = (
        f"Medians of {repeats} rounds. SQL: the statements of the page, sent again on a plain connection; for the "
        "search with one run of the model. Growth: the time of the page at 100,000 facts against that at 10,000. "
        f"Goals: at most {MAX_MS:.0f} ms at 10,000 facts, {MAX_KB:.0f} kB, {MAX_RATIO:.0f}× the SQL, "
        f"{MAX_GROWTH:.0f}× growth. Missed: {', '.join(missed) or 'none'}."
    )
    columns = ["", "kB", "SQL, ms", "page, ms", "ratio", "page at 100,000, ms", "ratio", "growth", "statements"]
    return Table("Pages", note, columns, rows), {"pages": measured, "missed": missed}


def _numbers(samples: Samples, recorded: Mapping[Any, Recorded], page: BenchPage) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for tenant in (SMALL, LARGE):
        parts = {
            part: statistics.median(samples[page.name, tenant, part]) * 1000
            for part in ("page", "sql", "model")
            if (page.name, tenant, part) in samples
        }
        bare = parts["sql"] + parts.get("model", 0.0)
        numbers |= {f"sql_{tenant}": bare, f"page_{tenant}": parts["page"], f"ratio_{tenant}": parts["page"] / bare}
    kilobytes = max(recorded[page.name, tenant].kilobytes for tenant in (SMALL, LARGE))
    statements = len(recorded[page.name, LARGE].statements)
    growth = numbers["page_large"] / numbers["page_small"]
    return {**numbers, "kb": kilobytes, "growth": growth, "statements": float(statements)}


def _missed_goals(page: BenchPage, numbers: Mapping[str, float]) -> list[str]:
    missed = [
        ("time", numbers["page_small"] > MAX_MS),
        ("size", numbers["kb"] > MAX_KB and not page.is_download),
        ("ratio", max(numbers["ratio_small"], numbers["ratio_large"]) > MAX_RATIO),
        ("growth", numbers["growth"] > MAX_GROWTH),
    ]
    return [goal for goal, is_missed in missed if is_missed]


def refuse_missing_routes() -> None:
    """Raise `RuntimeError` if the bench leaves out a page."""
    known = {page.route for page in PAGES} | set(NOT_MEASURED)
    if missing := {route.path for route in ROUTES if route.method == "GET"} - known:
        raise RuntimeError(f"the bench does not measure {', '.join(sorted(missing))}")


_NEW_INDEXES = (
    "memory_events_by_request",
    "facts_distilled",
    "rules_distilled",
    "facts_by_time",
    "facts_by_confirmation",
    "facts_vital_by_confirmation",
    "rules_by_confirmation",
    "rules_by_time",
    "rules_by_maturity_and_time",
    "episodes_by_time",
)


async def measure_stores(butler: Butler, memory: Memory, rounds: int, stores: int) -> tuple[Table, dict[str, object]]:
    """Stores a second with the dashboard's indexes and without them, in turns, in a tenant of 10,000 facts."""
    owner = await asyncpg.connect(butler.location.admin_dsn)
    kept = [each for each in _NEW_INDEXES if await owner.fetchval("select to_regclass($1)", each)]
    definitions = [await owner.fetchval("select pg_get_indexdef($1::text::regclass)", each) for each in kept]
    seconds: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for number in range(-1, rounds):
        for with_indexes in (False, True):
            for statement in definitions if with_indexes else [f"drop index {each}" for each in kept]:
                await owner.execute(statement, timeout=600)
            for kind, store in _stores(butler, memory).items():
                started = time.perf_counter()
                for _ in range(stores):
                    await store()
                if number >= 0:
                    seconds[kind, with_indexes].append(time.perf_counter() - started)
    await owner.close()
    rows, measured = [], {}
    for kind in ("fact", "rule", "episode"):
        without, with_them = (stores / statistics.median(seconds[kind, each]) for each in (False, True))
        ratios = [a / b for a, b in zip(seconds[kind, False], seconds[kind, True], strict=True)]
        ratio = statistics.median(ratios)
        measured[kind] = {"without": without, "with": with_them, "ratio": ratio}
        rows.append([f"{kind}s", f"{without:.0f}", f"{with_them:.0f}", f"{ratio:.2f}"])
    note = f"Stores a second below the protocol, one after the other, {rounds} times {stores} in turns."
    columns = ["", "without its indexes", "with them", "ratio"]
    return Table("Stores with the dashboard's indexes", note, columns, rows), {"stores": measured}


def _stores(butler: Butler, memory: Memory) -> dict[str, Callable[[], Awaitable[object]]]:
    caller, rng, request = caller_for(SMALL, butler), random.Random(time.time_ns()), Request("bench", {})

    async def store_rule() -> object:
        return await writing.store_rule(memory, caller, NewRule(content=sentence(rng)), request)

    async def store_episode() -> object:
        return await writing.store_episode(memory, caller, NewEpisode(content=sentence(rng), butler="bench"), request)

    return {
        "fact": lambda: store_fact(memory, caller, note(sentence(rng))),
        "rule": store_rule,
        "episode": store_episode,
    }


async def measure(butler: Butler, memory: Memory, repeats: int) -> tuple[list[Table], dict[str, object]]:
    """The tables of pages and of stores, with their numbers."""
    async with open_sites(butler, (SMALL, LARGE)) as sites:
        samples, recorded = await measure_pages(butler, memory, sites, PAGES, repeats)
    pages, measured = page_table(samples, recorded, PAGES, repeats)
    stores, stored = await measure_stores(butler, memory, rounds=7, stores=100)
    return [pages, stores], {**measured, **stored}


async def fill(butler: Butler, memory: Memory, small: int, large: int) -> None:
    """Fill both tenants, and build the vector indexes as the butler does at night."""
    seeds = await seed_vectors(memory, random.Random(5))
    await fill_tenant(butler, memory, SMALL, Sizes(small), seeds)
    await fill_tenant(butler, memory, LARGE, Sizes(large), seeds)
    await index_upkeep.maintain_indexes(memory, caller_for(SMALL, butler))


async def main(repeats: int, small: int, large: int, starts: int) -> None:
    """Measure and publish."""
    refuse_missing_routes()
    async with bench_butler() as (butler, memory, _):
        await fill(butler, memory, small, large)
        tables, measured = await measure(butler, memory, repeats)
    start, started = await asyncio.to_thread(start_tables, starts)
    about = (
        f"Two tenants in one database: {small:,} and {large:,} facts in every state, each with a tenth as many "
        "rules, a fifth as many episodes, a twentieth as many entities and twice as many events. A page is called in "
        "the bench's own process, without a network; pages and their statements take turns."
    )
    Report("dashboard", "Dashboard", about, {**measured, **started}, [*tables, *start]).publish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--starts", type=int, default=7)
    asyncio.run(main(**vars(parser.parse_args())))
