"""Queries on the episodes table."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import NewEpisode
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import event_origin
from butlers.modules.memory.store.statements import statements

_sql = statements("episodes")


async def insert(
    tx: Connection,
    caller: Caller,
    episode: NewEpisode,
    embedded: EmbeddedText,
    *,
    ttl_days: int,
    payload: Mapping[str, Any],
) -> tuple[UUID, datetime]:
    """Store an episode with its event, which has this payload too; returns its id and when it expires."""
    session = {"session_id": str(episode.session_id)} if episode.session_id else {}
    row = await _sql.insert(
        tx,
        tenant_id=caller.tenant,
        searchable=truncate_for_index(episode.searchable),
        **embedded._asdict(),
        ttl_days=ttl_days,
        **asdict(episode),
        **event_origin(caller, {**session, **payload}),
    )
    return row["id"], row["expires_at"]
