"""Consolidation of episodes into facts and rules: claim under a lease, ask the model, apply exactly once."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.contract import SessionResult, Spawner
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection, as_fault
from butlers.errors import Overloaded, SessionFailed, TimedOut, Unavailable
from butlers.modules.memory.domain import consolidation_output, consolidation_prompt
from butlers.modules.memory.domain.consolidation_prompt import KnownFact, KnownRule, Prompt, PromptEpisode
from butlers.modules.memory.domain.model import GLOBAL, MemoryType
from butlers.modules.memory.operations import consolidation_apply, consolidation_batch
from butlers.modules.memory.operations.batching import Progress, no_progress, retry_when_busy
from butlers.modules.memory.operations.consolidation_apply import LeaseLost, NothingApplied
from butlers.modules.memory.operations.consolidation_updates import settle_conflicts
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.search import graphs_to_read
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation, consolidation_guards, events
from butlers.modules.memory.store.consolidation import EpisodeBatch, EpisodeGroup, RunRecord
from butlers.modules.memory.store.events import Event

log = logging.getLogger("butlers.memory")
TRIGGER_SOURCE = "schedule:consolidation"
ACTOR = "consolidation"
MAX_PROMPT_FACTS, MAX_PROMPT_RULES, MAX_PROMPT_PREDICATES = 100, 50, 60
MAX_GROUPS = 1_000
MAX_LISTED = 100
_COUNTS = ("facts_created", "facts_updated", "rules_created", "confirmed")


@dataclass(slots=True)
class ConsolidationReport:
    """Counts, learned memories and problems of a consolidation run."""

    groups: int = 0
    waiting: int = 0
    batches: int = 0
    failed: int = 0
    record: RunRecord = field(default_factory=RunRecord)
    learned: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, record: RunRecord, learned: Sequence[dict[str, Any]]) -> None:
        """Add the record of one batch."""
        self.batches += 1
        self.failed += record.status == "failed"
        if record.status == "succeeded":
            self.record.episodes += record.episodes
        for name in (*_COUNTS, "proposed", "input_tokens", "output_tokens"):
            setattr(self.record, name, getattr(self.record, name) + getattr(record, name))
        self.record.tokens_estimated |= record.tokens_estimated
        if record.error:
            # The error already summarizes the errors of the single actions.
            self.notes.append(record.error)
        else:
            self.record.errors += record.errors
            self.record.parse_errors += record.parse_errors
        self.learned += learned

    def answer(self) -> Answer:
        """The report as the answer of a tool."""
        total = self.record
        errors = [*self.notes, *total.errors, *total.parse_errors]
        unlisted = len(errors) - MAX_LISTED
        return {
            "dry_run": False,
            "status": "finished",
            "groups": self.groups,
            "batches": self.batches,
            "failed_batches": self.failed,
            "episodes": total.episodes,
            **{name: getattr(total, name) for name in _COUNTS},
            "tokens": {
                "input": total.input_tokens,
                "output": total.output_tokens,
                "estimated": total.tokens_estimated,
            },
            **({"proposed": total.proposed} if total.proposed else {}),
            "learned": self.learned[:MAX_LISTED],
            "errors": errors[:MAX_LISTED] + ([f"{unlisted} more errors"] if unlisted > 0 else []),
        }


@cache
def instructions() -> str:
    """Return the instructions at the start of the prompt."""
    return (resources.files("butlers.modules.memory") / "prompts" / "consolidate.md").read_text(encoding="utf-8")


async def pending_groups(memory: Memory, caller: Caller, *, all_tenants: bool = False) -> list[EpisodeGroup]:
    """Return the groups with pending episodes, in the caller's tenant or in all of them."""
    if all_tenants:
        return await consolidation.groups_of_all_tenants(memory.database, MAX_GROUPS)
    async with memory.transaction(caller) as tx:
        return await consolidation.groups(tx, caller, MAX_GROUPS)


async def preview(memory: Memory, caller: Caller, *, all_tenants: bool = False) -> list[dict[str, Any]]:
    """Return the prompt each group would be sent; nothing is claimed and nothing changes."""
    prompts = []
    for group in await pending_groups(memory, caller, all_tenants=all_tenants):
        member = replace(caller, tenant=group.tenant)
        async with memory.transaction(member) as tx:
            limit = await consolidation_batch.batch_size(memory, tx, member, group.butler)
            max_characters = consolidation_batch.content_limit(memory)
            episodes = await consolidation.claimable_episodes(tx, member, group.butler, limit, max_characters)
        if episodes:
            prompt = await _build_prompt(memory, member, group.butler, episodes)
            prompts.append(
                {
                    "tenant": group.tenant,
                    "butler": group.butler,
                    "waiting": group.pending,
                    "episodes": prompt.episode_count,
                    "tokens": prompt.tokens,
                    "prompt": prompt.text,
                }
            )
    return prompts


async def dry_run(memory: Memory, caller: Caller, *, all_tenants: bool = False) -> Answer:
    """Return the number of pending episodes and of their groups."""
    groups = await pending_groups(memory, caller, all_tenants=all_tenants)
    return {"dry_run": True, "status": "finished", "groups": len(groups), "waiting": sum(g.pending for g in groups)}


async def consolidate(
    memory: Memory,
    caller: Caller,
    *,
    all_tenants: bool = False,
    retries: bool = False,
    progress: Progress = no_progress,
) -> Answer:
    """Consolidate all pending episodes, group by group; without a runtime, only count them.

    A failed group does not stop the others. A runtime that can't be reached does: the run raises `Unavailable` and
    the episodes stay pending. With `retries`, only groups with a retry that is due are consolidated.
    """
    if memory.spawner is None:
        return await dry_run(memory, caller, all_tenants=all_tenants)
    groups = await pending_groups(memory, caller, all_tenants=all_tenants)
    if retries:
        groups = [group for group in groups if group.retries]
    report = ConsolidationReport(groups=len(groups), waiting=sum(group.pending for group in groups))
    progress(0, report.waiting)
    if groups:
        memory.spawner.check()
    for group in groups:
        member = replace(caller, tenant=group.tenant)
        await _consolidate_group(memory, memory.spawner, member, group.butler, report, progress)
    return report.answer()


async def consolidate_in_background(memory: Memory, caller: Caller, *, seconds: float) -> Answer:
    """Start a run and return its result, or the status `running` when it takes longer than `seconds`.

    Where sessions can't be started, return the counts of a dry run and the reason.
    """
    try:
        if memory.spawner is not None:
            memory.spawner.check()
    except Unavailable as fault:
        return {**await dry_run(memory, caller), "reason": str(fault)}
    task = asyncio.create_task(consolidate(memory, caller))
    memory.background.add(task)
    task.add_done_callback(memory.background.discard)
    await asyncio.wait({task}, timeout=seconds)
    if task.done():
        return task.result()
    task.add_done_callback(_log_background_failure)
    return {"dry_run": False, "status": "running"}


def _log_background_failure(task: "asyncio.Task[Answer]") -> None:
    """Log the error of a run whose caller has already been answered."""
    if not task.cancelled() and (error := task.exception()):
        fault = as_fault(error)
        reason = {"reason": str(fault)} if fault else None
        log.warning("a consolidation run failed", extra=reason, exc_info=None if fault else error)


async def _consolidate_group(
    memory: Memory, spawner: Spawner, caller: Caller, butler: str, report: ConsolidationReport, progress: Progress
) -> None:
    """Consolidate one group batch by batch, until no episode is pending or a batch fails."""
    while True:
        if await _is_over_token_limit(memory, caller):
            report.notes.append("the daily token limit is reached; the other episodes stay pending")
            return
        try:
            batch = await consolidation_batch.claim_batch(memory, caller, butler)
        except Overloaded as fault:
            report.notes.append(fault.message)
            return
        if batch is None:
            return
        record = RunRecord()
        learned = await _consolidate_batch(memory, spawner, caller, batch, record)
        report.add(record, learned)
        progress(report.record.episodes, report.waiting)
        if record.status != "succeeded":
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
    """Return the memories learned from a batch. In every outcome the run is recorded and the lease released."""
    # Learned memories come from the episodes, not from the session that started the run.
    worker = replace(caller, request_id=str(batch.run_id), session_id=None)
    try:
        async with consolidation_batch.renew_lease(memory, worker, batch) as lost:
            return await _ask_and_apply(memory, spawner, worker, batch, record, lost)
    except asyncio.CancelledError:
        # A repeated cancellation must not stop the release.
        await asyncio.shield(
            consolidation_batch.release_batch(memory, worker, batch, record, consolidation_batch.CANCELLED)
        )
        raise
    except LeaseLost as fault:
        await consolidation_batch.record_lost(memory, worker, batch, record, fault.message)
    except (SessionFailed, NothingApplied) as fault:
        log.warning("a consolidation batch failed", extra={"run": str(batch.run_id), "code": fault.code})
        await consolidation_batch.record_failure(memory, worker, batch, record, fault.message)
    except (Unavailable, Overloaded, TimedOut) as fault:
        # The episodes are not the cause, so this attempt does not count.
        await consolidation_batch.release_batch(memory, worker, batch, record, fault.message)
        if isinstance(fault, Unavailable):
            raise
    except Exception as error:  # an error in one group must not stop the others
        log.exception("a consolidation batch failed", extra={"run": str(batch.run_id)})
        known = as_fault(error)
        message = known.message if known else type(error).__name__
        await consolidation_batch.record_failure(memory, worker, batch, record, message)
    return []


async def _ask_and_apply(
    memory: Memory,
    spawner: Spawner,
    caller: Caller,
    batch: EpisodeBatch,
    record: RunRecord,
    lost: "asyncio.Future[None]",
) -> list[dict[str, Any]]:
    """Send the prompt to the model, parse its output and apply it; return the learned memories."""
    prompt = await _build_prompt(memory, caller, batch.butler, batch.episodes)
    batch = await consolidation_batch.release_excess(memory, caller, batch, prompt.episode_count)
    record.episodes, record.known_left_out = len(batch.episodes), prompt.known_left_out
    output = await _run_session(memory, spawner, caller, batch, prompt, record, lost)
    await _record_usage(memory, output, record)
    result = await asyncio.to_thread(consolidation_output.parse_output, output.text)
    record.parse_errors = list(result.parse_errors)
    if not result.actions and not result.explicitly_empty:
        raise NothingApplied(result.parse_errors)
    actions, vectors = await consolidation_apply.prepare_actions(memory, caller, batch.butler, result)

    async def ask(text: str) -> str:
        return await _ask_again(memory, spawner, caller, batch, text, record, lost)

    actions, vectors = await settle_conflicts(memory, caller, batch.butler, actions, vectors, ask)
    return await retry_when_busy(consolidation_apply.apply_batch, memory, caller, batch, actions, vectors, record)


async def _ask_again(
    memory: Memory,
    spawner: Spawner,
    caller: Caller,
    batch: EpisodeBatch,
    text: str,
    record: RunRecord,
    lost: "asyncio.Future[None]",
) -> str:
    """Return the output of a second session about the same batch; empty if it failed, since the first one counts."""
    first = replace(record)
    prompt = Prompt(text, len(batch.episodes), await asyncio.to_thread(memory.embedder.count_tokens, text))
    try:
        output = await _run_session(memory, spawner, caller, batch, prompt, record, lost)
        await _record_usage(memory, output, record)
    except (SessionFailed, Unavailable, Overloaded, TimedOut) as fault:
        log.warning("the second turn of a consolidation failed", extra={"run": str(batch.run_id), "code": fault.code})
        return ""
    finally:
        record.session_id = first.session_id
        record.input_tokens += first.input_tokens
        record.output_tokens += first.output_tokens
        record.tokens_estimated |= first.tokens_estimated
    return output.text


async def _build_prompt(memory: Memory, caller: Caller, butler: str, episodes: Sequence[PromptEpisode]) -> Prompt:
    scopes, ids, version = [GLOBAL, butler], [each.id for each in episodes], memory.embedder.version.id
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        graphs = await graphs_to_read(memory, tx, caller, butler, MAX_PROMPT_FACTS)
        facts = await consolidation.nearest(
            tx, caller, KnownFact, ids, version, scopes, MAX_PROMPT_FACTS, uses_graph=MemoryType.FACT in graphs
        )
        rules = await consolidation.nearest(
            tx, caller, KnownRule, ids, version, scopes, MAX_PROMPT_RULES, uses_graph=MemoryType.RULE in graphs
        )
        predicates = []
        if memory.config.consolidation.list_predicates:
            predicates = await consolidation_guards.frequent_predicates(tx, caller, scopes, MAX_PROMPT_PREDICATES)
    return await asyncio.to_thread(
        consolidation_prompt.assemble_prompt,
        instructions(),
        butler,
        episodes,
        facts,
        rules,
        predicates=predicates,
        max_tokens=memory.config.consolidation.max_prompt_tokens,
        count=memory.embedder.count_tokens,
    )


async def _run_session(
    memory: Memory,
    spawner: Spawner,
    caller: Caller,
    batch: EpisodeBatch,
    prompt: Prompt,
    record: RunRecord,
    lost: "asyncio.Future[None]",
) -> SessionResult:
    """Return the result of the batch's session. Tokens count from its start, and none if it did not run."""

    async def book_prompt() -> None:
        # Written here, not at the end: a failed session uses tokens too, and so does one whose butler is killed.
        async with memory.transaction(caller) as tx:
            await consolidation.book_prompt(tx, caller, batch.run_id, prompt.tokens)
        record.input_tokens, record.tokens_estimated = prompt.tokens, True

    session = spawner.spawn(caller, prompt.text, trigger_source=TRIGGER_SOURCE, internal=True, on_start=book_prompt)
    try:
        return await _run_unless_lost(lost, session)
    except SessionFailed:
        raise
    except Unavailable:
        # The runtime could not be reached.
        record.input_tokens, record.tokens_estimated = 0, False
        raise
    except TimedOut as fault:
        if not record.tokens_estimated:
            raise
        raise SessionFailed(fault.message) from fault


async def _record_usage(memory: Memory, output: SessionResult, record: RunRecord) -> None:
    """Record the tokens a session used: as reported by the runtime, else estimated from its output."""
    record.session_id = output.session_id
    if output.usage is not None:
        record.input_tokens, record.output_tokens = output.usage.input_tokens, output.usage.output_tokens
        record.tokens_estimated = False
        return
    text = output.text[: consolidation_output.MAX_OUTPUT_CHARACTERS]
    record.output_tokens = await asyncio.to_thread(memory.embedder.count_tokens, text)


async def _run_unless_lost(lost: "asyncio.Future[None]", session: Awaitable[SessionResult]) -> SessionResult:
    """Return the result of a session; cancel it and raise `LeaseLost` when the lease is lost first."""
    task = asyncio.ensure_future(session)
    try:
        futures: set[asyncio.Future[Any]] = {task, lost}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise LeaseLost
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def list_dead_letters(memory: Memory, caller: Caller, limit: int) -> Answer:
    """Return the first dead-lettered episodes with their last error, and the number of all."""
    async with memory.transaction(caller) as tx:
        episodes, total = await consolidation.dead_letters(tx, caller, limit)
    return {"dead_letters": episodes, "total": total}


async def retry_dead_letters(memory: Memory, caller: Caller, ids: Sequence[UUID] | None, request: Request) -> Answer:
    """Make dead-lettered episodes pending again: the given ones, or all."""

    async def work(tx: Connection) -> Answer:
        requeued = await consolidation.requeue(tx, caller, ids, memory.config.episode_ttl_days)
        await events.append(tx, caller, *(Event("episode_requeued", MemoryType.EPISODE, each) for each in requeued))
        return {"requeued": len(requeued), "ids": [str(each) for each in requeued]}

    return await run_once(memory.transaction(caller), caller, request, work)
