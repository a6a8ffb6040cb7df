"""Requests to run a job now, each recorded once on the audit trail."""

from uuid import uuid4

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events
from butlers.modules.memory.store.events import Event


async def record_job_request(memory: Memory, caller: Caller, job: str, request: Request) -> bool:
    """Record that a caller asked to run a job; return False for a request that was recorded before."""
    request_id = uuid4()

    async def work(tx: Connection) -> Answer:
        await events.append(tx, caller, Event("job_requested", "job", request_id, {"job": job}))
        return {"id": str(request_id)}

    answer = await run_once(memory.transaction(caller), caller, request, work)
    return bool(answer["id"] == str(request_id))
