"""Counts."""

from collections.abc import Mapping, Sequence
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.store.statements import statements

_sql = statements("stats")
_jobs = statements("jobs")


async def episodes(tx: Connection, caller: Caller, butlers: Sequence[str] | None) -> Mapping[str, Any]:
    """Episodes by what becomes of them."""
    return dict(await _sql.episodes(tx, tenant_id=caller.tenant, butlers=butlers))


async def facts(tx: Connection, caller: Caller, scopes: Sequence[str] | None) -> Mapping[str, Any]:
    """Facts by state and belief."""
    return dict(await _sql.facts(tx, tenant_id=caller.tenant, scopes=scopes))


async def jobs(tx: Connection) -> dict[str, Mapping[str, Any]]:
    """The latest run of each job, by its name."""
    return {row["job"]: dict(row) async for row in _jobs.latest(tx)}


async def rules(tx: Connection, caller: Caller, scopes: Sequence[str] | None) -> Mapping[str, Any]:
    """Rules by trust and effect."""
    return dict(await _sql.rules(tx, tenant_id=caller.tenant, scopes=scopes))
