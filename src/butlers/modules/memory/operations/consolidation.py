"""Episodes become knowledge: claimed under a lease, thought about without a connection, applied exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.contract import SessionResult, Spawner
from butlers.db import WRITE_TIMEOUT_SECONDS, as_fault
from butlers.errors import Fault, Overloaded, SessionFailed, TimedOut, Unavailable
from butlers.modules.memory.domain import consolidation_output, consolidation_prompt
from butlers.modules.memory.domain.consolidation_prompt import Prompt, PromptEpisode
from butlers.modules.memory.domain.model import GLOBAL, MemoryType
from butlers.modules.memory.operations import consolidation_apply, consolidation_batch
from butlers.modules.memory.operations.consolidation_apply import LeaseLost, NothingApplied
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.retry import retry_when_busy
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, events
from butlers.modules.memory.store.consolidation import EpisodeBatch, EpisodeGroup, RunRecord
from butlers.modules.memory.store.events import Event

log = logging.getLogger("butlers.memory")
TRIGGER_SOURCE = "schedule:consolidation"
ACTOR = "consolidation"
MOST_FACTS, MOST_RULES = 100, 50
MOST_GROUPS = 1_000
MOST_LISTED = 100


@dataclass(slots=True)
class ConsolidationReport:
    """What a run has done so far."""

    groups: int = 0
    waiting: int = 0
    batches: int = 0
    failed: int = 0
    record: RunRecord = field(default_factory=RunRecord)
    learned: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: Fault | None = None

    def add(self, record: RunRecord, learned: Sequence[dict[str, Any]]) -> None:
        """Count one more batch."""
        self.batches += 1
        self.failed += record.status == "failed"
        if record.status == "succeeded":
            self.record.episodes += record.episodes
        for name in ("facts_created", "facts_updated", "rules_created", "confirmed"):
            setattr(self.record, name, getattr(self.record, name) + getattr(record, name))
        self.record.input_tokens += record.input_tokens
        self.record.output_tokens += record.output_tokens
        self.record.tokens_estimated |= record.tokens_estimated
        if record.error:
            # It says what was wrong with all the parts.
            self.notes.append(record.error)
        else:
            self.record.errors += record.errors
            self.record.parse_errors += record.parse_errors
        self.learned += learned

    def answer(self) -> Answer:
        """The counts, and what was learned."""
        counted = self.record
        return {
            "dry_run": False,
            "status": "finished",
            "groups": self.groups,
            "batches": self.batches,
            "failed_batches": self.failed,
            "episodes": counted.episodes,
            "facts_created": counted.facts_created,
            "facts_updated": counted.facts_updated,
            "rules_created": counted.rules_created,
            "confirmed": counted.confirmed,
            "tokens": {
                "input": counted.input_tokens,
                "output": counted.output_tokens,
                "estimated": counted.tokens_estimated,
            },
            "learned": self.learned[:MOST_LISTED],
            "errors": [*self.notes, *counted.errors, *counted.parse_errors][:MOST_LISTED],
        }


Tell = Callable[[ConsolidationReport], None]


@cache
def instructions() -> str:
    """What the model is told to do."""
    return (resources.files("butlers.modules.memory") / "prompts" / "consolidate.md").read_text(encoding="utf-8")


async def pending_groups(memory: Memory, caller: Caller, *, everywhere: bool = False) -> list[EpisodeGroup]:
    """Who has episodes that wait: in the caller's tenant, or in all of them."""
    if everywhere:
        return await consolidation.groups_of_all_tenants(memory.database, MOST_GROUPS)
    async with memory.transaction(caller) as tx:
        return await consolidation.groups(tx, caller, MOST_GROUPS)


async def preview(memory: Memory, caller: Caller, *, everywhere: bool = False) -> list[dict[str, Any]]:
    """What would be sent, group by group; nothing is taken and nothing changes."""
    shown = []
    for group in await pending_groups(memory, caller, everywhere=everywhere):
        inside = _caller_in_group(caller, group)
        async with memory.transaction(inside) as tx:
            most = await consolidation_batch.batch_size(memory, tx, inside, group.butler)
            episodes = await consolidation.pending_episodes(tx, inside, group.butler, most)
        if episodes:
            prompt = await _build_prompt(memory, inside, group.butler, episodes)
            shown.append(
                {
                    "tenant": group.tenant,
                    "butler": group.butler,
                    "waiting": group.pending,
                    "episodes": prompt.taken,
                    "tokens": prompt.tokens,
                    "prompt": prompt.text,
                }
            )
    return shown


async def dry_run(memory: Memory, caller: Caller, *, everywhere: bool = False) -> Answer:
    """A dry run: how much waits, in how many groups."""
    groups = await pending_groups(memory, caller, everywhere=everywhere)
    return {"dry_run": True, "status": "finished", "groups": len(groups), "waiting": sum(g.pending for g in groups)}


async def consolidate(
    memory: Memory,
    caller: Caller,
    *,
    everywhere: bool = False,
    retries: bool = False,
    tell: Tell = lambda _: None,
) -> Answer:
    """Consolidate everything that waits, group by group; without a runtime, count it.

    A group that fails leaves the others alone. A runtime that can't be reached at all ends the run: raises
    `Unavailable`, and what waits goes on waiting. Retries: only where something is to be tried again by now.
    """
    if memory.spawner is None:
        return await dry_run(memory, caller, everywhere=everywhere)
    groups = await pending_groups(memory, caller, everywhere=everywhere)
    if retries:
        groups = [group for group in groups if group.retries]
    report = ConsolidationReport(groups=len(groups), waiting=sum(group.pending for group in groups))
    tell(report)
    if groups:
        memory.spawner.check()
    for group in groups:
        await _consolidate_group(memory, memory.spawner, _caller_in_group(caller, group), group.butler, report, tell)
        if report.stopped is not None:
            raise report.stopped
    return report.answer()


async def consolidate_in_background(memory: Memory, caller: Caller, *, seconds: float) -> Answer:
    """A run that need not end with the call that began it: its result, or after so many seconds that it goes on.

    Where sessions can't be started nothing is taken: what waits is counted, and the answer says what is missing.
    """
    try:
        if memory.spawner is not None:
            memory.spawner.check()
    except Unavailable as fault:
        return {**await dry_run(memory, caller), "reason": str(fault)}
    running = asyncio.create_task(consolidate(memory, caller))
    memory.background.add(running)
    running.add_done_callback(memory.background.discard)
    await asyncio.wait({running}, timeout=seconds)
    if running.done():
        return running.result()
    running.add_done_callback(_log_background_failure)
    return {"dry_run": False, "status": "running"}


def _log_background_failure(running: "asyncio.Task[Answer]") -> None:
    """Whoever asked is gone: a run that ended badly is told in the log."""
    if not running.cancelled() and (error := running.exception()):
        log.warning("consolidation ended early", exc_info=error)


def _caller_in_group(caller: Caller, group: EpisodeGroup) -> Caller:
    """Whoever runs it, inside the group's tenant."""
    return replace(caller, tenant=group.tenant) if group.tenant != caller.tenant else caller


async def _consolidate_group(
    memory: Memory, spawner: Spawner, caller: Caller, butler: str, report: ConsolidationReport, tell: Tell
) -> None:
    """Batch after batch of one group, until none is left or one comes to nothing."""
    while True:
        if await _is_over_token_limit(memory, caller):
            report.notes.append("the daily token limit is reached; the rest waits")
            return
        try:
            batch = await consolidation_batch.claim_batch(memory, caller, butler)
        except Overloaded as fault:
            report.notes.append(fault.message)
            return
        if batch is None:
            return
        record, learned = RunRecord(), list[dict[str, Any]]()
        try:
            learned = await _consolidate_batch(memory, spawner, caller, batch, record)
        except Unavailable as fault:
            report.stopped = fault
        report.add(record, learned)
        tell(report)
        if record.status != "succeeded" or report.stopped:
            return


async def _is_over_token_limit(memory: Memory, caller: Caller) -> bool:
    limit = memory.config.consolidation.daily_token_limit
    if not limit:
        return False
    async with memory.transaction(caller) as tx:
        return await consolidation.tokens_last_day(tx, caller) >= limit


async def _consolidate_batch(
    memory: Memory, spawner: Spawner, caller: Caller, batch: EpisodeBatch, record: RunRecord
) -> list[dict[str, Any]]:
    """What was learned from a batch. However it ends, the record says so and the lease is gone."""
    # Whoever asked for it did not say what comes of it: what is learned is no session's own.
    worker = replace(caller, request_id=str(batch.run_id), session_id=None)
    try:
        async with consolidation_batch.renew_lease(memory, worker, batch) as lost:
            return await _ask_and_apply(memory, spawner, worker, batch, record, lost)
    except asyncio.CancelledError:
        await consolidation_batch.release_cancelled(memory, worker, batch, record)
        raise
    except LeaseLost as fault:
        await consolidation_batch.record_lost(memory, worker, batch, record, fault.message)
    except (SessionFailed, NothingApplied) as fault:
        log.warning("a batch was not consolidated", extra={"run": str(batch.run_id), "code": fault.code})
        await consolidation_batch.record_failure(memory, worker, batch, record, fault.message)
    except (Unavailable, Overloaded, TimedOut) as fault:
        # Nothing is wrong with the episodes: this attempt does not count.
        await consolidation_batch.release_batch(memory, worker, batch, record, fault.message)
        if isinstance(fault, Unavailable):
            raise
    except Exception as error:  # one group, whatever happens to it, must not keep the others waiting
        log.exception("a batch was not consolidated", extra={"run": str(batch.run_id)})
        known = as_fault(error)
        await consolidation_batch.record_failure(
            memory, worker, batch, record, known.message if known else type(error).__name__
        )
    return []


async def _ask_and_apply(
    memory: Memory,
    spawner: Spawner,
    caller: Caller,
    batch: EpisodeBatch,
    record: RunRecord,
    lost: "asyncio.Future[None]",
) -> list[dict[str, Any]]:
    """Ask the model, read its answer, apply it."""
    prompt = await _build_prompt(memory, caller, batch.butler, batch.episodes)
    batch = await consolidation_batch.release_excess(memory, caller, batch, prompt.taken)
    record.episodes = len(batch.episodes)
    # A session that fails has taken tokens too, and nobody says how many.
    record.input_tokens, record.tokens_estimated = prompt.tokens, True
    try:
        asked = spawner.spawn(caller, prompt.text, trigger_source=TRIGGER_SOURCE, internal=True)
        answered = await _run_unless_lost(lost, asked)
    except TimedOut as fault:
        raise SessionFailed(fault.message) from fault
    await _record_usage(memory, prompt, answered, record)
    result = await asyncio.to_thread(consolidation_output.parse_output, answered.text)
    record.parse_errors = list(result.parse_errors)
    if not result.actions and not result.explicitly_empty:
        raise NothingApplied(result.parse_errors)
    lessons = await consolidation_apply.prepare_actions(memory, caller, batch.butler, result)
    return await retry_when_busy(consolidation_apply.apply_batch, memory, caller, batch, lessons, record)


async def _build_prompt(memory: Memory, caller: Caller, butler: str, episodes: Sequence[PromptEpisode]) -> Prompt:
    scopes, ids, version = [GLOBAL, butler], [each.id for each in episodes], memory.embedder.version.id
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        facts = await consolidation.near_facts(tx, caller, ids, version, scopes, MOST_FACTS)
        rules = await consolidation.near_rules(tx, caller, ids, version, scopes, MOST_RULES)
    return await asyncio.to_thread(
        consolidation_prompt.assemble_prompt,
        instructions(),
        butler,
        episodes,
        facts,
        rules,
        most_tokens=memory.config.consolidation.max_prompt_tokens,
        count=memory.embedder.count_tokens,
    )


async def _record_usage(memory: Memory, prompt: Prompt, answered: SessionResult, record: RunRecord) -> None:
    """The tokens a session took, by the runtime's word or by our own count."""
    record.session_id = answered.session_id
    if answered.usage is not None:
        record.input_tokens, record.output_tokens = answered.usage.input_tokens, answered.usage.output_tokens
        record.tokens_estimated = False
        return
    said = answered.text[: consolidation_output.LONGEST_OUTPUT]
    record.input_tokens = prompt.tokens
    record.output_tokens = await asyncio.to_thread(memory.embedder.count_tokens, said)


async def _run_unless_lost(lost: "asyncio.Future[None]", thinking: Awaitable[SessionResult]) -> SessionResult:
    """The model's answer; there is no use in waiting for it once the batch is somebody else's."""
    session = asyncio.ensure_future(thinking)
    try:
        either: set[asyncio.Future[Any]] = {session, lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not session.done():
            raise LeaseLost
        return session.result()
    finally:
        if not session.done():
            session.cancel()
            await asyncio.wait({session})


async def list_dead_letters(memory: Memory, caller: Caller, limit: int) -> list[dict[str, Any]]:
    """Episodes that were set aside after their last attempt, with the reason."""
    async with memory.transaction(caller) as tx:
        return await consolidation.dead_letters(tx, caller, limit)


async def retry_dead_letters(memory: Memory, caller: Caller, ids: Sequence[UUID] | None, request: Request) -> Answer:
    """Let episodes that were set aside wait again: these, or all of them."""
    async with memory.transaction(caller) as tx:

        async def work() -> Answer:
            again = await consolidation.requeue(tx, caller, ids, memory.config.episode_ttl_days)
            await events.append(tx, caller, *(Event("episode_requeued", MemoryType.EPISODE, each) for each in again))
            return {"requeued": len(again), "ids": [str(each) for each in again]}

        return await run_once(tx, caller, request, work)
