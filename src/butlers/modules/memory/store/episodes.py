"""Queries on the episodes table."""

from dataclasses import asdict
from datetime import datetime
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
