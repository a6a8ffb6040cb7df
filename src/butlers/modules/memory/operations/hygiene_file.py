"""Hygiene of an exported file: the same report about memories that are not stored here."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, BinaryIO
from uuid import NAMESPACE_OID, uuid5

from butlers.memory_formats import (
    ForeignEntity,
    ForeignEpisode,
    ForeignFact,
    ForeignMemory,
    ForeignRecord,
    ForeignRule,
    Problem,
)
from butlers.modules.memory.domain.hygiene import FindingKind, HygieneRecord, find_pairs
from butlers.modules.memory.domain.model import MemoryType, fact_text
from butlers.modules.memory.domain.secrets import count_kinds
from butlers.modules.memory.operations.batching import Progress, no_progress
from butlers.modules.memory.operations.export_format import index_file, read_lines
from butlers.modules.memory.operations.hygiene import NEGLECTED_DAYS, HygieneReport
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.secret_detector import detect_secrets

_TEXTS_AT_ONCE = 500
_NOT_IN_FILES = "a file does not tell what sessions were told: echoes are among the twins"


async def inspect_file(memory: Memory, file: BinaryIO, *, progress: Progress = no_progress) -> HygieneReport:
    """Inspect the live memories of an exported file; nothing is stored. Raises `InvalidExportFile`."""
    report = _empty_report()
    await asyncio.to_thread(index_file, file)
    records = await asyncio.to_thread(_read_records, file, report, datetime.now(UTC))
    return await _compare(memory, records, report, progress)


async def inspect_foreign(
    memory: Memory, records: Iterable[ForeignRecord], *, progress: Progress = no_progress
) -> HygieneReport:
    """Inspect the memories of another system; nothing is stored. Raises `InvalidInput` for what can't be read."""
    report = _empty_report()
    read = await asyncio.to_thread(_read_foreign, records, report, datetime.now(UTC))
    return await _compare(memory, read, report, progress)


def _empty_report() -> HygieneReport:
    return HygieneReport(live={"facts": 0, "rules": 0, "episodes": 0, "entities": 0}, notes=[_NOT_IN_FILES])


async def _compare(
    memory: Memory, records: Sequence[HygieneRecord], report: HygieneReport, progress: Progress
) -> HygieneReport:
    """Embed the records and add the pairs that are found among them."""
    embedded: list[HygieneRecord] = []
    for start in range(0, len(records), _TEXTS_AT_ONCE):
        part = records[start : start + _TEXTS_AT_ONCE]
        vectors = await memory.embedder.embed_batch([_text(each) for each in part])
        embedded += [replace(each, vector=vector) for each, vector in zip(part, vectors, strict=True)]
        progress(len(embedded), len(records))
    for group in _groups(embedded):
        report.add_pairs(await asyncio.to_thread(find_pairs, group), set())
    return report


def _text(record: HygieneRecord) -> str:
    if record.memory_type is MemoryType.RULE:
        return record.content
    return fact_text(record.subject, record.predicate, record.content)


def _groups(records: Iterable[HygieneRecord]) -> list[list[HygieneRecord]]:
    """The facts of each subject, and the rules of each scope."""

    def key(record: HygieneRecord) -> tuple[str, str]:
        return record.memory_type, record.subject or record.scope

    return [list(group) for _, group in groupby(sorted(records, key=key), key)]


def _read_records(file: BinaryIO, report: HygieneReport, now: datetime) -> list[HygieneRecord]:
    """The live facts and rules of a file; what is found in a single record goes into the report."""
    records = []
    for line in read_lines(file):
        values = line.values
        kind = values["kind"]
        if kind not in {"fact", "rule", "episode", "entity"} or not _is_live(values, now):
            continue
        report.live["entities" if kind == "entity" else f"{kind}s"] += 1
        if kind == "entity":
            continue
        memory_type = MemoryType(kind)
        _inspect_record(memory_type, line.record, report, now)
        if memory_type is not MemoryType.EPISODE:
            records.append(_record(memory_type, line.record))
    return records


def _read_foreign(records: Iterable[ForeignRecord], report: HygieneReport, now: datetime) -> list[HygieneRecord]:
    """The facts and rules of another system; what is found in a single record goes into the report."""
    read = []
    for record in records:
        if isinstance(record, ForeignEntity):
            report.live["entities"] += 1
        elif isinstance(record, Problem):
            report.notes.append("a part of the file can't be read")
        elif isinstance(record, (ForeignFact, ForeignRule, ForeignEpisode)):
            found = _foreign_record(record, now)
            _inspect_foreign_record(found, report)
            read += [found] if found.memory_type is not MemoryType.EPISODE else []
    return read


_FOREIGN_TYPES: dict[type, MemoryType] = {
    ForeignFact: MemoryType.FACT,
    ForeignRule: MemoryType.RULE,
    ForeignEpisode: MemoryType.EPISODE,
}


def _foreign_record(record: ForeignMemory, now: datetime) -> HygieneRecord:
    memory_type = _FOREIGN_TYPES[type(record)]
    found = HygieneRecord(
        uuid5(NAMESPACE_OID, f"{memory_type} {record.id}"),
        memory_type,
        record.content,
        None,
        record.created_at or now,
    )
    if isinstance(record, ForeignFact):
        return replace(found, subject=record.subject, predicate=record.predicate)
    return found


def _inspect_foreign_record(record: HygieneRecord, report: HygieneReport) -> None:
    report.live[f"{record.memory_type}s"] += 1
    if secrets := detect_secrets(f"{record.subject} {record.predicate} {record.content}"):
        report.findings[FindingKind.SECRETS].add(record.memory_type, record.id, {"kinds": count_kinds(secrets)})


def _is_live(values: dict[str, Any], now: datetime) -> bool:
    metadata = values.get("metadata") or {}
    if values["kind"] == "fact":
        return values["validity"] in {"active", "fading"}
    if values["kind"] == "episode":
        expires_at = values["expires_at"]
        return expires_at is None or datetime.fromisoformat(expires_at) > now
    return not metadata.get("forgotten") and "merged_into" not in metadata


def _record(memory_type: MemoryType, record: Any) -> HygieneRecord:
    names = ("subject", "predicate", "scope", "entity_id")
    values = {name: getattr(record, name) for name in names if hasattr(record, name)}
    provenance = record.metadata.get("provenance")
    return HygieneRecord(
        record.id, memory_type, record.content, None, record.created_at, provenance=provenance, **values
    )


def _inspect_record(memory_type: MemoryType, record: Any, report: HygieneReport, now: datetime) -> None:
    if secrets := detect_secrets(record.searchable):
        report.findings[FindingKind.SECRETS].add(memory_type, record.id, {"kinds": count_kinds(secrets)})
    is_old = record.created_at < now - timedelta(days=NEGLECTED_DAYS)
    example = {"content": record.content[:300]}
    if memory_type is MemoryType.FACT and is_old and not record.reference_count:
        report.findings[FindingKind.UNUSED_FACTS].add(memory_type, record.id, example)
    if memory_type is MemoryType.RULE and is_old and not record.applied_count:
        report.findings[FindingKind.UNJUDGED_RULES].add(memory_type, record.id, example)
