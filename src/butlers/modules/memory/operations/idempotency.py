"""Carries out a request once, however often it is sent with the same key."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import validate_short_text
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import idempotency

LONGEST_KEY = 200

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, so that the same asked again can be told from something else."""

    tool: str
    arguments: Mapping[str, Any]
    key: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """A hash of the arguments, which may be private."""
        told = json.dumps([self.tool, self.arguments], sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).digest()


async def run_once_across_transactions(
    memory: Memory, caller: Caller, request: Request, work: Callable[[], Awaitable[Answer]]
) -> Answer:
    """The same for work of several transactions, which must bear being done twice when two come at the same time."""
    if not request.key:
        return await work()
    key = validate_short_text("idempotency_key", request.key, LONGEST_KEY)
    async with memory.transaction(caller) as tx:
        earlier = await idempotency.stored_answer(tx, caller, key, request.tool, request.fingerprint)
    if earlier is not None:
        known: Answer = earlier
        return known
    answer = await work()
    async with memory.transaction(caller) as tx:
        if await idempotency.claim_key(tx, caller, key, request.tool, request.fingerprint) is None:
            await idempotency.store_answer(tx, caller, key, answer)
    return answer


async def run_once(tx: Connection, caller: Caller, request: Request, work: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer of the first call with this request's key; without a key, simply the work's."""
    if not request.key:
        return await work()
    key = validate_short_text("idempotency_key", request.key, LONGEST_KEY)
    earlier = await idempotency.claim_key(tx, caller, key, request.tool, request.fingerprint)
    if earlier is not None:
        answer: Answer = earlier
        return answer
    answer = await work()
    await idempotency.store_answer(tx, caller, key, answer)
    return answer
