"""Queries that count memories by state, and the latest job runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("stats")
_jobs = statements("jobs")


async def episodes(tx: Connection, caller: Caller, butlers: Sequence[str] | None) -> Mapping[str, Any]:
    """Episodes by state."""
    return dict(await _sql.episodes(tx, tenant_id=caller.tenant, butlers=butlers))


async def facts(tx: Connection, caller: Caller, scopes: Sequence[str] | None) -> dict[str, Any]:
    """Facts by state and confidence."""
    return dict(await _sql.facts(tx, tenant_id=caller.tenant, scopes=scopes))


async def jobs(tx: Connection) -> dict[str, Mapping[str, Any]]:
    """The latest run of each job, by job name."""
    return {row["job"]: dict(row) async for row in _jobs.latest_runs(tx)}


async def rules(tx: Connection, caller: Caller, scopes: Sequence[str] | None) -> dict[str, Any]:
    """Rules by maturity and effectiveness."""
    return dict(await _sql.rules(tx, tenant_id=caller.tenant, scopes=scopes))
