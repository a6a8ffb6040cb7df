"""Import of memories of other systems: a preview, and an import that is complete or has no effect."""

import asyncio
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import InvalidInput, NotFound
from butlers.memory_formats import MemoryFormat, Problem, Source
from butlers.modules.memory.domain.model import MemoryType, fact_key
from butlers.modules.memory.operations import export_format, export_import, retraction
from butlers.modules.memory.operations.batching import Progress, no_progress
from butlers.modules.memory.operations.export_format import FileIndex, Header
from butlers.modules.memory.operations.foreign_records import CollectedRecords, ImportOptions, Values, collect
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import foreign_import
from butlers.modules.memory.store.export_import import BATCH, RECORD_ORDER, RecordKind, disable_idle_timeout

_MAX_REPLACED = 100
_MAX_LISTED = 100
_HELD = "a fact whose key another fact has"


class BrokenSource(InvalidInput):
    """A source of which a part can't be read."""

    def __init__(self, problems: Sequence[Problem], number: int) -> None:
        first = problems[0]
        more = f", and {number - 1} more problems" if number > 1 else ""
        super().__init__(
            f"{first.place}: {first.reason}{more}",
            hint="Nothing was imported. Pass --partial to import the rest, or --dry-run to see all problems.",
        )


@dataclass(slots=True)
class ForeignImportReport:
    """Number of records that an import brings or brought, of those known before, and of parts left out."""

    format: str
    new: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    """Memories that the tenant has with other words."""
    retracted: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    problems: Sequence[Problem] = ()
    problem_count: int = 0
    import_id: UUID | None = None


async def preview_import(
    memory: Memory,
    caller: Caller,
    source: Source,
    format_: MemoryFormat,
    options: ImportOptions,
    replaces: UUID | None = None,
) -> ForeignImportReport:
    """Return what an import would bring; nothing changes."""
    with await _collected(source, format_, options) as collected:
        async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            await disable_idle_timeout(tx)
            planner = _Planner(tx, caller, collected)
            await planner.compare(await _replaced_ids(tx, caller, replaces))
            with tempfile.TemporaryFile() as file:
                await planner.write(file)
            return planner.report


async def import_foreign(
    memory: Memory,
    caller: Caller,
    source: Source,
    format_: MemoryFormat,
    options: ImportOptions,
    replaces: UUID | None = None,
    *,
    is_partial: bool = False,
    progress: Progress = no_progress,
) -> ForeignImportReport:
    """Import a source in one transaction; raises `BrokenSource` for an unreadable part unless `is_partial`.

    With `replaces`, what that earlier import brought and the source no longer has is retracted.
    """
    with await _collected(source, format_, options) as collected:
        if collected.problems and not is_partial:
            raise BrokenSource(collected.problems, collected.problem_count)
        with tempfile.TemporaryFile() as file:
            async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
                await export_import.lock_target(tx, caller)
                planner = _Planner(tx, caller, collected)
                stale = await planner.compare(await _replaced_ids(tx, caller, replaces))
                if any(stale.values()):
                    await retraction.retract_ids(tx, caller, stale)
                index = await planner.write(file)
                origin = {"format": options.format, "file": options.file}
                if replaces:
                    origin["replaces"] = str(replaces)
                imported = await export_import.import_indexed(
                    memory,
                    caller,
                    tx,
                    file,
                    index,
                    merge=True,
                    origin=origin,
                    progress=progress,
                )
    planner.report.import_id = imported.id
    return planner.report


async def list_imports(memory: Memory, caller: Caller) -> list[dict[str, Any]]:
    """Return the newest imports, each with its id, time, origin and counts."""
    async with memory.transaction(caller) as tx:
        return await foreign_import.list_imports(tx, caller, _MAX_LISTED)


@contextmanager
def _closing(collected: CollectedRecords) -> Iterator[CollectedRecords]:
    try:
        yield collected
    finally:
        collected.close()


async def _collected(source: Source, format_: MemoryFormat, options: ImportOptions) -> Any:
    return _closing(await asyncio.to_thread(lambda: collect(format_.read(source), options)))


async def _replaced_ids(tx: Connection, caller: Caller, import_id: UUID | None) -> dict[MemoryType, set[UUID]]:
    """Return the memories that an import, and those it replaced in turn, brought; raises `NotFound`."""
    found: dict[MemoryType, set[UUID]] = {kind: set() for kind in MemoryType}
    for _ in range(_MAX_REPLACED):
        if import_id is None:
            break
        summary = await foreign_import.get_import(tx, caller, import_id)
        if summary is None:
            raise NotFound(f"there is no import {import_id}", hint="`butlers memory imports` lists them.")
        ids = await foreign_import.imported_ids(tx, caller, import_id)
        for kind in MemoryType:
            found[kind].update(ids.get(kind, ()))
        before = summary["origin"].get("replaces")
        import_id = UUID(before) if before else None
    return found


class _Planner:
    """Compares collected records with a tenant, and writes those that it does not have as an export file."""

    def __init__(self, tx: Connection, caller: Caller, collected: CollectedRecords) -> None:
        self._tx, self._caller, self._collected = tx, caller, collected
        self._known: set[UUID] = set()
        self._renewed: dict[UUID, UUID] = {}
        """New ids of memories whose words changed since the import that is replaced."""
        self._entity_ids: dict[UUID, UUID] = {}
        """The entities of the tenant that stand for those of the file."""
        self._keys: set[bytes] = set()
        self._counts: Counter[RecordKind] = Counter()
        self.report = ForeignImportReport(
            collected.options.format,
            left_out=collected.left_out,
            redacted=collected.redacted,
            problems=collected.problems,
            problem_count=collected.problem_count,
        )

    async def compare(self, replaced: Mapping[MemoryType, set[UUID]]) -> dict[MemoryType, list[UUID]]:
        """Find what the tenant has already; return the replaced memories that are not in the file any more."""
        for kind in MemoryType:
            for batch in _batches(self._collected.read(kind)):
                await self._compare_batch(kind, batch, replaced[kind])
        stale = {
            kind: sorted(each for each in ids if each not in self._collected.kinds or each in self._renewed)
            for kind, ids in replaced.items()
        }
        self.report.retracted = sum(map(len, stale.values()))
        return stale

    async def write(self, file: BinaryIO) -> FileIndex:
        """Write the new records to a file of the export format, whose first line is empty."""
        file.write(b"{}\n")
        await self._write_entities(file)
        for kind in MemoryType:
            for batch in _batches(self._new(kind)):
                await self._write_batch(file, kind, batch)
        for (source, target), relation in self._collected.links.items():
            self._write_link(file, source, target, relation)
        options = self._collected.options
        header = Header(
            format="butlers-memory",
            version=export_format.VERSION,
            butler=options.butler,
            tenant=self._caller.tenant,
            created_at=options.now,
            vectors=False,
            counts={kind: self._counts[kind] for kind in RECORD_ORDER},
        )
        return FileIndex(header, {})

    async def _compare_batch(self, kind: MemoryType, batch: Sequence[Values], replaced: set[UUID]) -> None:
        ids = {UUID(each["id"]): each for each in batch}
        digests = await foreign_import.known_memories(self._tx, self._caller, kind, list(ids))
        recorded = await self._recorded(batch) if kind is MemoryType.EPISODE else set()
        renewed: dict[UUID, UUID] = {}
        for memory_id, values in ids.items():
            if memory_id not in digests and values.get("session_id") not in recorded:
                continue
            is_changed = memory_id in digests and digests[memory_id] != _content_digest(values)
            if is_changed and memory_id in replaced:
                renewed[memory_id] = self._collected.options.id_of(f"{memory_id}\n{values['content']}")
                continue
            self.report.changed += is_changed
            self._known.add(memory_id)
        there = await foreign_import.known_memories(self._tx, self._caller, kind, list(renewed.values()))
        for memory_id, new_id in renewed.items():
            self._renewed[memory_id] = new_id
            self._collected.kinds[new_id] = kind
            if new_id in there:
                self._known.add(memory_id)
        self.report.known[kind] = self.report.known[kind] + len(self._known & ids.keys())

    async def _recorded(self, batch: Sequence[Values]) -> set[str]:
        """Return the sessions that have an episode already, which a hook stored."""
        sessions = [UUID(each["session_id"]) for each in batch if each["session_id"]]
        found = await foreign_import.recorded_sessions(self._tx, self._caller, sessions) if sessions else set()
        return {str(each) for each in found}

    def _new(self, kind: MemoryType) -> Iterator[Values]:
        for values in self._collected.read(kind):
            memory_id = UUID(values["id"])
            if memory_id not in self._known:
                yield values | {"id": str(self._renewed.get(memory_id, memory_id))}

    async def _write_entities(self, file: BinaryIO) -> None:
        for batch in _batches(self._collected.entities.values()):
            ids = [UUID(each["id"]) for each in batch]
            known = await foreign_import.known_entities(self._tx, self._caller, ids)
            names = [each["canonical_name"].lower() for each in batch]
            named = await foreign_import.entities_named(self._tx, self._caller, names)
            for entity_id, values in zip(ids, batch, strict=True):
                same = known.get(entity_id) or _same_entity(values, named.get(values["canonical_name"].lower(), []))
                if same is None:
                    self._write(file, RecordKind.ENTITY, values)
                else:
                    self._entity_ids[entity_id] = same
                    self.report.known["entity"] += 1

    async def _write_batch(self, file: BinaryIO, kind: MemoryType, batch: Sequence[Values]) -> None:
        stored = batch if kind is not MemoryType.FACT else await self._with_own_keys(batch)
        for values in stored:
            self._write(file, RecordKind(kind), values)

    async def _with_own_keys(self, batch: Sequence[Values]) -> list[Values]:
        """Return the facts under keys that no other has: with the predicate, or the predicate and a digest."""
        variants: list[Values] = []
        for values in batch:
            if entity_id := values["entity_id"]:
                values["entity_id"] = str(self._entity_ids.get(UUID(entity_id), UUID(entity_id)))
            digest = hashlib.sha256(values["content"].encode()).hexdigest()[:8]
            variants += [values, values | {"predicate": f"{values['predicate']}#{digest}"}]
        wanted = [_key_columns(number, values) for number, values in enumerate(variants)]
        held = await foreign_import.held_keys(self._tx, self._caller, wanted)
        chosen: list[Values] = []
        for first in range(0, len(variants), 2):
            for number in (first, first + 1):
                key = _key_digest(variants[number])
                if number not in held and key not in self._keys:
                    self._keys.add(key)
                    chosen.append(variants[number])
                    break
            else:
                self.report.left_out[_HELD] += 1
                del self._collected.kinds[UUID(variants[first]["id"])]
        return chosen

    def _write_link(self, file: BinaryIO, source: UUID, target: UUID, relation: str) -> None:
        ends = [self._renewed.get(each, each) for each in (source, target)]
        if set(ends) <= self._collected.kinds.keys() and not {source, target} <= self._known:
            (source_type, target_type) = (self._collected.kinds[each] for each in ends)
            values = {
                "kind": "link",
                "source_type": source_type,
                "source_id": str(ends[0]),
                "target_type": target_type,
                "target_id": str(ends[1]),
                "relation": relation,
                "created_at": self._collected.options.now.isoformat(),
            }
            self._write(file, RecordKind.LINK, values)

    def _write(self, file: BinaryIO, kind: RecordKind, values: Values) -> None:
        self._counts[kind] += 1
        self.report.new[kind] += 1
        file.write(json.dumps(values).encode() + b"\n")


def _same_entity(values: Values, named: Sequence[tuple[UUID, str]]) -> UUID | None:
    """Return the tenant's entity of that name: of the same type, or of any if one of both has no type."""
    for entity_id, entity_type in named:
        if entity_type == values["entity_type"]:
            return entity_id
    if len(named) == 1 and "other" in {values["entity_type"], named[0][1]}:
        return named[0][0]
    return None


def _key_columns(number: int, values: Values) -> Values:
    return {name: values[name] for name in ("scope", "subject", "predicate", "entity_id")} | {"number": number}


def _key_digest(values: Values) -> bytes:
    entity_id = UUID(values["entity_id"]) if values["entity_id"] else None
    key = fact_key(values["scope"], values["subject"], values["predicate"], entity_id)
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def _content_digest(values: Values) -> str:
    return hashlib.md5(values["content"].encode(), usedforsecurity=False).hexdigest()


def _batches(records: Iterable[Values]) -> Iterator[list[Values]]:
    remaining = iter(records)
    while batch := list(islice(remaining, BATCH)):
        yield batch


def file_name(path: Path) -> str:
    """Return the name of a file or folder as the metadata of its memories holds it."""
    return path.name or path.resolve().name
