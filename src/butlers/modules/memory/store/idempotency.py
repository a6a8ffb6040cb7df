"""Requests that may be sent twice and are carried out once."""

from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.errors import IdempotencyKeyReused
from butlers.modules.memory.store.statements import statements

_sql = statements("idempotency_keys")


async def claim_key(tx: Connection, caller: Caller, key: str, tool: str, arguments_hash: bytes) -> Any | None:
    """What the first call with this key answered; None when this is the first."""
    claimed = await _sql.claim(tx, tenant_id=caller.tenant, key=key, tool=tool, arguments_hash=arguments_hash)
    if claimed is not None:
        return None
    return await stored_answer(tx, caller, key, tool, arguments_hash)


async def stored_answer(tx: Connection, caller: Caller, key: str, tool: str, arguments_hash: bytes) -> Any | None:
    """What a call with this key answered; None when there was none."""
    first = await _sql.answer_of(tx, tenant_id=caller.tenant, key=key)
    if first is None:
        return None
    if first["tool"] != tool or first["arguments_hash"] != arguments_hash:
        raise IdempotencyKeyReused(key)
    return first["answer"]


async def store_answer(tx: Connection, caller: Caller, key: str, answer: Any) -> None:
    """Keep the answer for whoever sends the request again."""
    await _sql.keep_answer(tx, tenant_id=caller.tenant, key=key, answer=answer)
