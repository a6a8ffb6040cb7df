"""Queries on the episodes table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.statements import statements

_sql = statements("episodes")


async def insert(
    tx: Connection, caller: Caller, episode: NewEpisode, embedded: EmbeddedText, *, ttl_days: int
) -> tuple[UUID, datetime]:
    """Store an episode; returns its id and when it expires."""
    row = await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        searchable=truncate_for_index(episode.searchable),
        **embedded._asdict(),
        ttl_days=ttl_days,
        **asdict(episode),
    )
    return row["id"], row["expires_at"]


async def recent(
    tx: Connection, caller: Caller, butler: str, limit: int, max_characters: int
) -> Sequence[Mapping[str, Any]]:
    """The latest live episodes of a butler, newest first, contents cut after so many characters."""
    rows = _sql.recent(tx, tenant_id=caller.tenant, butler=butler, max_rows=limit, max_characters=max_characters)
    return [dict(row) async for row in rows]
