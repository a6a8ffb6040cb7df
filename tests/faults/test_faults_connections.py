"""Connections that the server ends at any point of a call, under load, in two tenants (row 49)."""

import asyncio
import logging
import random
from collections import Counter
from typing import Any

import pytest

from butlers import embedded_server
from butlers.app import Butler
from butlers.errors import Fault, Unavailable
from butlers.host.leases import hold_lease
from database.butler_processes import connected
from memory.memory_fixtures import Archive, Tools, valid_arguments

SECONDS = 6.0
CALLERS = 50
ALLOWED = {"ok", "unavailable", "overloaded", "conflict", "already_exists"}


async def end_connections(butler: Butler, cluster: embedded_server.Cluster, until: float) -> None:
    """End about a third of the butler's connections every few milliseconds until that time."""
    end = (
        "select count(pg_terminate_backend(pid)) from pg_stat_activity"
        " where usename = $1 and application_name = 'butlers' and random() < 0.35"
    )
    async with connected(cluster.dsn("postgres")) as server:
        while now() < until:
            await server.fetchval(end, butler.location.app)
            await asyncio.sleep(random.uniform(0, 0.08))


def now() -> float:
    return asyncio.get_running_loop().time()


class Load:
    """Callers of every tool in one tenant, and what they were told."""

    def __init__(self, tools: Tools, arguments: dict[str, dict[str, Any]]) -> None:
        self.tools, self.arguments = tools, arguments
        self.outcomes: Counter[str] = Counter()
        self.errors: list[str] = []
        self.stored: dict[str, str] = {}

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer of a tool, or None after an error."""
        answer = await self.tools.client.call_tool(tool, arguments, raise_on_error=False)
        text = str(answer.content[0].text) if answer.is_error else "ok"
        self.outcomes[text.partition(":")[0]] += 1
        if text.partition(":")[0] not in ALLOWED:
            self.errors.append(f"{tool}: {text}")
        return None if answer.is_error else answer.structured_content

    async def store(self, name: str) -> None:
        """Store a fact under a key, again and again until it is acknowledged."""
        fact = {"subject": "load", "predicate": name, "content": f"tea {name}", "idempotency_key": name}
        while (answer := await self.call("memory_store_fact", fact)) is None:  # noqa: ASYNC110 — a retry, not a wait
            await asyncio.sleep(0.02)
        self.stored[name] = answer["id"]

    async def run(self, caller: int, until: float) -> None:
        """Store facts and call the other tools in a random order until the time is over."""
        order, number = random.Random(caller), 0
        while now() < until:
            number += 1
            await self.store(f"{caller}_{number}")
            tool = order.choice(sorted(self.arguments))
            changed = {"canonical_name": f"House {caller} {number}"} if tool == "entity_create" else {}
            await self.call(tool, {**self.arguments[tool], **changed})


async def test_row_49_connections_ended_at_any_point_are_unavailable_and_what_is_stored_is_stored_once(
    tools: Tools, stranger: Tools, butler: Butler, archive: Archive, memory, cluster, caplog: pytest.LogCaptureFixture
):
    loads = [Load(each, await valid_arguments(each, memory.butler)) for each in (tools, stranger)]
    until = now() + SECONDS
    for library in ("fastmcp", "fastmcp.server.server"):
        caplog.set_level(logging.CRITICAL, library)
    caplog.set_level(logging.WARNING, "butlers")
    calls = [loads[number % 2].run(number, until) for number in range(CALLERS)]
    await asyncio.gather(end_connections(butler, cluster, until), *calls)
    assert [record for record in caplog.records if record.exc_info and record.name.startswith("butlers")] == []
    for load in loads:
        assert load.errors == []
        assert load.outcomes["ok"] > 10
        assert load.outcomes["unavailable"] > 10
        rows = await archive.rows(
            "select predicate, id::text from facts where tenant_id = $1 and subject = 'load'", load.tools.tenant
        )
        assert sorted((row["predicate"], row["id"]) for row in rows) == sorted(load.stored.items())
        assert await load.tools("memory_stats")
    assert butler.database.usage().idle == butler.database.usage().size


async def test_row_49_jobs_and_checks_on_ended_connections_raise_faults_only(butler: Butler, cluster):
    module, outcomes = butler.modules[0], Counter[str]()
    until = now() + 3

    async def repeat(work: Any) -> None:
        while now() < until:
            try:
                await work()
            except Fault as fault:
                outcomes[fault.code] += 1
            else:
                outcomes["ok"] += 1

    async def hold_lock() -> None:
        async with hold_lease(butler.database, "row 49"):
            await asyncio.sleep(0.01)

    sweeps = [job for job in module.jobs() if job.name in {"decay_sweep", "episode_cleanup", "consolidate"}]
    works = [*(lambda job=job: job.run(butler.caller()) for job in sweeps), module.gauges, butler.database.ping]
    await asyncio.gather(end_connections(butler, cluster, until), *map(repeat, [*works, hold_lock]))
    assert set(outcomes) <= {"ok", "unavailable", "overloaded"}
    assert outcomes["unavailable"]


async def test_row_49_a_connection_lost_during_the_commit_says_that_the_change_may_be_stored(
    butler: Butler, caller, cluster
):
    async with connected(cluster.dsn("postgres")) as server:
        with pytest.raises(Unavailable, match="during the commit") as lost:
            async with butler.database.transaction(caller) as tx:
                await server.execute("select pg_terminate_backend($1)", await tx.fetchval("select pg_backend_pid()"))
        assert "may be stored" in lost.value.hint
        assert "idempotency_key" in lost.value.hint
        with pytest.raises(Unavailable) as counted:
            async with butler.database.transaction(caller, durable=False) as tx:
                await server.execute("select pg_terminate_backend($1)", await tx.fetchval("select pg_backend_pid()"))
    assert "may be stored" not in counted.value.hint
