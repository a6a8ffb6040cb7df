"""Queries on the idempotency_keys table."""

from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.errors import IdempotencyKeyReused
from butlers.modules.memory.store.statements import statements

_sql = statements("idempotency_keys")


async def claim_key(tx: Connection, caller: Caller, key: str, tool: str, arguments_hash: bytes) -> Any | None:
    """Claim a key; returns the answer of the first call with it, or None where this is the first."""
    claimed = await _sql.claim_key(tx, tenant_id=caller.tenant, key=key, tool=tool, arguments_hash=arguments_hash)
    if claimed is not None:
        return None
    return await stored_answer(tx, caller, key, tool, arguments_hash)


async def stored_answer(tx: Connection, caller: Caller, key: str, tool: str, arguments_hash: bytes) -> Any | None:
    """The answer of the call with this key, or None; raises `IdempotencyKeyReused` for other arguments."""
    first = await _sql.stored_answer(tx, tenant_id=caller.tenant, key=key)
    if first is None:
        return None
    if first["tool"] != tool or first["arguments_hash"] != arguments_hash:
        raise IdempotencyKeyReused(key)
    return first["answer"]


async def is_used(tx: Connection, caller: Caller, key: str) -> bool:
    """Whether a call was made with this key."""
    return await _sql.stored_answer(tx, tenant_id=caller.tenant, key=key) is not None


async def store_answer(tx: Connection, caller: Caller, key: str, answer: Any) -> None:
    """Store the answer for when the request is sent again."""
    await _sql.store_answer(tx, tenant_id=caller.tenant, key=key, answer=answer)
