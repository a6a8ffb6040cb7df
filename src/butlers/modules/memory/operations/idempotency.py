"""Idempotent requests: a request with a key is carried out once, and its answer is stored."""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from butlers.caller import Caller
from butlers.db import Connection
from butlers.errors import Conflict
from butlers.modules.memory.domain.model import validate_short_text
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, idempotency

MAX_KEY_CHARACTERS = 200

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """A tool call with its arguments and its optional idempotency key."""

    tool: str
    arguments: Mapping[str, Any]
    key: str | None = None

    @property
    def fingerprint(self) -> bytes:
        """Hash of the tool and its arguments; the arguments may be private and are not stored."""
        call = json.dumps([self.tool, self.arguments], sort_keys=True, default=str)
        return hashlib.sha256(call.encode()).digest()

    def validated_key(self) -> str | None:
        """Return the key, or None without one; raises `InvalidInput` for a blank or too long key."""
        return validate_short_text("idempotency_key", self.key, MAX_KEY_CHARACTERS) if self.key else None


async def find_answer(memory: Memory, caller: Caller, request: Request) -> Answer | None:
    """Return the stored answer of a request, or None; raises `IdempotencyKeyReused` for other arguments."""
    key = request.validated_key()
    if key is None:
        return None
    async with memory.transaction(caller) as tx:
        return await idempotency.stored_answer(tx, caller, key, request.tool, request.fingerprint)


async def refuse_id_of_call(memory: Memory, caller: Caller, key: str) -> None:
    """Raise `Conflict` if a key that is to be the id of a call is the id of another one: it has events, no answer."""
    async with memory.transaction(caller) as tx:
        if await events.of_request(tx, caller, key, 1) and not await idempotency.is_used(tx, caller, key):
            raise Conflict("the key is the id of another call", hint="Reload the page and send the form again.")


async def run_once(
    transaction: AbstractAsyncContextManager[Connection],
    caller: Caller,
    request: Request,
    work: Callable[[Connection], Awaitable[Answer]],
) -> Answer:
    """Run `work` in the transaction and return its answer; a repeated key returns the first answer instead."""
    async with transaction as tx:
        key = request.validated_key()
        if key is None:
            return await work(tx)
        stored: Answer | None = await idempotency.claim_key(tx, caller, key, request.tool, request.fingerprint)
        if stored is not None:
            return stored
        answer = await work(tx)
        await idempotency.store_answer(tx, caller, key, answer)
        return answer


async def run_once_across_transactions(
    memory: Memory, caller: Caller, request: Request, work: Callable[[], Awaitable[Answer]]
) -> Answer:
    """Do the same for work that opens its own transactions; two calls at the same time may both run it."""
    key = request.validated_key()
    if key is None:
        return await work()
    async with memory.transaction(caller) as tx:
        stored: Answer | None = await idempotency.stored_answer(tx, caller, key, request.tool, request.fingerprint)
    if stored is not None:
        return stored
    answer = await work()
    async with memory.transaction(caller) as tx:
        if await idempotency.claim_key(tx, caller, key, request.tool, request.fingerprint) is None:
            await idempotency.store_answer(tx, caller, key, answer)
    return answer
