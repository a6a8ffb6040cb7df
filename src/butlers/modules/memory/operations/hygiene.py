"""Hygiene of a tenant's memory: a report with examples, remedies and a score, and a fix that can be undone."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from uuid import UUID, uuid4

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import InvalidInput
from butlers.modules.memory.domain.hygiene import (
    DEFAULT_FIXES,
    FIXABLE,
    REMEDIES,
    Finding,
    FindingKind,
    HygieneRecord,
    RecordPair,
    choose_superfluous,
    find_pairs,
    hygiene_score,
)
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.secrets import count_kinds
from butlers.modules.memory.operations.batching import Progress, no_progress
from butlers.modules.memory.operations.change_events import append_changes
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.undo import BATCH, MAX_EVENTS
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.secret_detector import detect_secrets
from butlers.modules.memory.store import entities, facts, hygiene, memories, states, twins
from butlers.modules.memory.store.twins import Pair

NEGLECTED_DAYS = 30
"""A younger memory had little time to be used or judged."""
FORMULA = "100 * (1 - (bad + neglected / 4) / live)"
MAX_GROUP = 20_000
"""Facts of one subject, and rules, that are compared with each other: the newest."""
_GROUPED_ROWS = 5_000
_TEXTS_AT_ONCE = 500
_NEWEST_ENTITIES, _MAX_ENTITY_PAIRS = 5_000, 1_000


@dataclass(slots=True)
class HygieneReport:
    """The findings of one inspection."""

    live: dict[str, int] = field(default_factory=dict)
    findings: dict[FindingKind, Finding] = field(
        default_factory=lambda: {kind: Finding(kind) for kind in FindingKind}
    )
    notes: list[str] = field(default_factory=list)

    def add_pairs(self, pairs: Sequence[RecordPair], echoes: set[tuple[UUID, UUID]]) -> None:
        """Add pairs of which the second record could go."""
        contradictions = [each for each in pairs if each.kind is FindingKind.CONTRADICTIONS]
        superfluous = choose_superfluous(each for each in pairs if each.kind is not FindingKind.CONTRADICTIONS)
        for pair in (*superfluous, *contradictions):
            kind = FindingKind.ECHOES if (pair.other.id, pair.kept.id) in echoes else pair.kind
            example = {**_shown(pair.other), "beside": {"id": str(pair.kept.id), **_shown(pair.kept)}}
            self.findings[kind].add(
                pair.other.memory_type, pair.other.id, {**example, "similarity": round(pair.similarity, 3)}
            )

    def answer(self) -> Answer:
        """The report as the answer of a tool."""
        return {
            "score": hygiene_score(sum(self.live.values()), self.findings.values()),
            "formula": FORMULA,
            "live": self.live,
            "findings": [
                {
                    "kind": each.kind.value,
                    "count": each.count,
                    "remedy": REMEDIES[each.kind],
                    "fixable": each.kind in FIXABLE,
                    "examples": each.examples,
                }
                for each in self.findings.values()
            ],
            "notes": self.notes,
        }


def _shown(record: HygieneRecord) -> dict[str, str]:
    names = ("subject", "predicate", "content") if record.memory_type is MemoryType.FACT else ("content",)
    return {name: getattr(record, name) for name in names}


async def inspect(memory: Memory, caller: Caller, *, progress: Progress = no_progress) -> HygieneReport:
    """Inspect a tenant's memory in many short transactions; nothing changes, and nothing counts as used."""
    report = HygieneReport()
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        report.live = await hygiene.count_live(tx, caller)
        groups = await hygiene.fact_groups(tx, caller)
    total = sum(report.live.values()) + sum(count for _, count in groups)
    done = 0
    for subjects, count in _batches(groups):
        await _inspect_facts(memory, caller, subjects, report)
        done += count
        progress(done, total)
    await _inspect_rules(memory, caller, report)
    for memory_type in MemoryType:
        async for scanned in _inspect_secrets(memory, caller, memory_type, report):
            done += scanned
            progress(done, total)
    await _inspect_neglected(memory, caller, report)
    await _inspect_entities(memory, caller, report)
    return report


def _batches(groups: Sequence[tuple[str, int]]) -> Iterator[tuple[list[str], int]]:
    """Yield subjects with some thousand facts together; a larger subject comes alone."""
    subjects: list[str] = []
    rows = 0
    for subject, count in groups:
        if subjects and rows + count > _GROUPED_ROWS:
            yield subjects, rows
            subjects, rows = [], 0
        subjects.append(subject)
        rows += count
    if subjects:
        yield subjects, rows


async def _inspect_facts(memory: Memory, caller: Caller, subjects: Sequence[str], report: HygieneReport) -> None:
    limit = MAX_GROUP if len(subjects) == 1 else 2 * _GROUPED_ROWS
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        records = await hygiene.facts_of_subjects(tx, caller, subjects, memory.embedder.version.id, limit)
    if len(records) == MAX_GROUP:
        report.notes.append(f"of one subject only the newest {MAX_GROUP:,} facts were compared")
    by_subject = [list(group) for _, group in groupby(records, lambda each: each.subject)]
    pairs = await asyncio.to_thread(lambda: [pair for group in by_subject for pair in find_pairs(group)])
    await _add_pairs(memory, caller, MemoryType.FACT, pairs, report)


async def _inspect_rules(memory: Memory, caller: Caller, report: HygieneReport) -> None:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        records = await hygiene.rules(tx, caller, memory.embedder.version.id, MAX_GROUP)
    scopes = sorted({each.scope for each in records})
    groups = [[each for each in records if each.scope == scope] for scope in scopes]
    pairs = await asyncio.to_thread(lambda: [pair for group in groups for pair in find_pairs(group)])
    await _add_pairs(memory, caller, MemoryType.RULE, pairs, report)


async def _add_pairs(
    memory: Memory, caller: Caller, memory_type: MemoryType, pairs: Sequence[RecordPair], report: HygieneReport
) -> None:
    """Add the pairs that nobody decided about."""
    if not pairs:
        return
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        ids = [Pair(each.kept.id, each.other.id, each.similarity) for each in pairs]
        undecided = {(each.id, each.other_id) for each in await twins.unlinked(tx, caller, memory_type, ids)}
        left = [each for each in pairs if (each.kept.id, each.other.id) in undecided]
        learned = [(each.other.id, each.kept.id) for each in left if each.other.provenance is not None]
        echoes = await hygiene.echoes(tx, caller, learned) if learned else set()
    report.add_pairs(left, echoes)


async def _inspect_secrets(
    memory: Memory, caller: Caller, memory_type: MemoryType, report: HygieneReport
) -> AsyncIterator[int]:
    after = hygiene.NO_ID
    while True:
        async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            texts = await hygiene.contents(tx, caller, memory_type, after, _TEXTS_AT_ONCE)
        if not texts:
            return
        found = await memory.scanning.run(
            caller.tenant,
            lambda texts=texts: [(each, detect_secrets(text)) for each, text in texts],  # type: ignore[misc]
        )
        for memory_id, secrets in found:
            if secrets:
                report.findings[FindingKind.SECRETS].add(memory_type, memory_id, {"kinds": count_kinds(secrets)})
        after = texts[-1][0]
        yield len(texts)


async def _inspect_neglected(memory: Memory, caller: Caller, report: HygieneReport) -> None:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        unused = await hygiene.unused_facts(tx, caller, NEGLECTED_DAYS)
        unjudged = await hygiene.unjudged_rules(tx, caller, NEGLECTED_DAYS)
    for row in unused:
        report.findings[FindingKind.UNUSED_FACTS].add(MemoryType.FACT, row.pop("id"), row)
    for row in unjudged:
        report.findings[FindingKind.UNJUDGED_RULES].add(MemoryType.RULE, row.pop("id"), row)


async def _inspect_entities(memory: Memory, caller: Caller, report: HygieneReport) -> None:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        pairs = await twins.entity_pairs(tx, caller, _NEWEST_ENTITIES, _MAX_ENTITY_PAIRS)
        finding = report.findings[FindingKind.ENTITIES]
        finding.count = len({each.id for each in pairs})
        for each in pairs[:5]:
            names = [(await entities.get(tx, caller, part))["canonical_name"] for part in (each.id, each.other_id)]
            finding.examples.append({"id": str(each.id), "beside": {"id": str(each.other_id)}, "names": names})


async def fix(
    memory: Memory, caller: Caller, kinds: Sequence[str] = (), *, progress: Progress = no_progress
) -> Answer:
    """Inspect, forget what the findings of these kinds name in one transaction, and return what was done.

    The answer has the `request_id` whose undo brings everything back. Raises `InvalidInput` for a kind without a fix.
    """
    chosen = _fixable_kinds(kinds)
    report = await inspect(memory, caller, progress=progress)
    ids: dict[MemoryType, list[UUID]] = {}
    for kind in chosen:
        for memory_type, found in report.findings[kind].ids.items():
            ids.setdefault(memory_type, []).extend(found)
    worker = replace(caller, request_id=str(uuid4()))
    room, forgotten, left = MAX_EVENTS, {}, 0
    async with memory.transaction(worker, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        for memory_type, found in ids.items():
            distinct = sorted(set(found))
            part = distinct[:room]
            room, left = room - len(part), left + len(distinct) - len(part)
            forgotten[f"{memory_type}s"] = await _forget(tx, worker, memory_type, part)
    return {
        **report.answer(),
        "fixed": [kind.value for kind in chosen],
        "forgotten": forgotten,
        "left": left,
        "request_id": worker.request_id,
    }


def _fixable_kinds(kinds: Sequence[str]) -> list[FindingKind]:
    known = {kind.value: kind for kind in FIXABLE}
    for each in kinds:
        if each not in known:
            raise InvalidInput(f"'{each}' has no fix", hint=f"Choose from {', '.join(known)}.")
    return [known[each] for each in kinds] if kinds else list(DEFAULT_FIXES)


async def _forget(tx: Connection, caller: Caller, memory_type: MemoryType, ids: Sequence[UUID]) -> int:
    """Forget memories that are still live, batch by batch; return their number."""
    if memory_type is MemoryType.FACT:
        await facts.lock_keys_of_facts(tx, caller, ids)
    await states.lock_rows(tx, caller, memory_type, ids)
    number = 0
    for start in range(0, len(ids), BATCH):
        before = await states.fetch(tx, caller, memory_type, ids[start : start + BATCH])
        done = set(await memories.forget(tx, caller, memory_type, list(before)))
        touched = {each: state for each, state in before.items() if each in done}
        await append_changes(tx, caller, f"{memory_type}_forgotten", memory_type, touched, {"by": "hygiene"})
        number += len(touched)
    return number
