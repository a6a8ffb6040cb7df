"""A whole tenant, out into a file and back: everything or nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO
from uuid import UUID, uuid4

import asyncpg

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import AlreadyExists, Conflict
from butlers.modules.memory.domain.text import truncate_for_index
from butlers.modules.memory.operations import export_format
from butlers.modules.memory.operations.export_format import (
    ExportedMemory,
    FileIndex,
    Header,
    InvalidExportFile,
    RecordLine,
)
from butlers.modules.memory.runtime import Memory as Running
from butlers.modules.memory.store import embedding_versions, entities, events, export_import
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.export_import import (
    BATCH,
    MEMORY_KINDS,
    RECORD_ORDER,
    ExportRow,
    RecordKind,
    SearchableText,
)

LARGEST_BATCH = 4 * 1024 * 1024
_SORTING_SECONDS = 600.0

Progress = Callable[[int, int], None]
"""Hears how many records are done, of how many."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What came in, and what was there already."""

    header: Header
    imported: Mapping[RecordKind, int]
    skipped: Mapping[RecordKind, int]

    @property
    def memories(self) -> int:
        """How many episodes, facts and rules came in."""
        return sum(self.imported[kind] for kind in MEMORY_KINDS)


def _no_progress(_: int, __: int) -> None:
    """Nobody is told."""


async def export_tenant(
    memory: Running,
    caller: Caller,
    write: Callable[[str], Any],
    *,
    vectors: bool = False,
    told: Progress = _no_progress,
) -> Header:
    """Write all that the tenant has, a line for each record, as it was at one moment."""
    header: Header | None = None
    done = 0
    async with memory.transaction(caller, seconds=_SORTING_SECONDS) as tx:
        await export_import.disable_idle_timeout(tx)
        async for rows in export_import.stream_records(tx, caller, vectors=vectors):
            records = rows
            if header is None:
                header, records = _header(memory, caller, rows[0], vectors=vectors), rows[1:]
                write(header.model_dump_json() + "\n")
            write("".join(_line(row) for row in records))
            done += len(records)
            told(done, header.records)
    if header is None:
        raise AssertionError("the counts come first")
    return header


def _header(memory: Running, caller: Caller, counts: ExportRow, *, vectors: bool) -> Header:
    return Header(
        format="butlers-memory",
        version=export_format.VERSION,
        butler=memory.butler,
        tenant=caller.tenant,
        created_at=datetime.now(UTC),
        vectors=vectors,
        counts={kind: counts.record[kind] for kind in RECORD_ORDER},
    )


def _line(row: ExportRow) -> str:
    values = {"kind": row.kind, **row.record}
    if row.embedding is not None:
        values["embedding"] = export_format.encode_vector(row.embedding.to_numpy())
    # ASCII alone: a line separator inside a content must not end the line for anybody.
    return json.dumps(values, separators=(",", ":")) + "\n"


async def import_file(
    memory: Running, caller: Caller, file: BinaryIO, *, merge: bool = False, told: Progress = _no_progress
) -> ImportReport:
    """Take in a whole file, checked to its last line before anything is written; all of it or nothing."""
    survey = await asyncio.to_thread(export_format.index_file, file)
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        await export_import.disable_idle_timeout(tx)
        await _require_import_target(tx, caller, merge=merge)
        taking = _Import(memory, caller, tx, survey, merge=merge)
        for batch in _batches(export_format.read_lines(file)):
            await taking.take(batch)
            told(taking.done, survey.header.records)
        return await taking.finished()


async def _require_import_target(tx: Connection, caller: Caller, *, merge: bool) -> None:
    if not await export_import.try_lock_import(tx, caller):
        raise Conflict(f"another import into the tenant {caller.tenant} is under way", hint="Wait until it is done.")
    if not merge and await export_import.has_records(tx, caller):
        raise AlreadyExists(
            f"the tenant {caller.tenant} is not empty",
            hint="Name an empty one with --tenant, or add to this one with --merge.",
        )


class _Import:
    """An import under way."""

    def __init__(self, memory: Running, caller: Caller, tx: Connection, survey: FileIndex, *, merge: bool) -> None:
        self._memory, self._caller, self._tx = memory, caller, tx
        self._survey, self._merge = survey, merge
        self._id = uuid4()
        self._imported: Counter[RecordKind] = Counter(dict.fromkeys(RECORD_ORDER, 0))
        self._skipped: Counter[RecordKind] = Counter(dict.fromkeys(RECORD_ORDER, 0))
        self._to_tie: dict[UUID, UUID] = {}
        self._version_known = False

    @property
    def done(self) -> int:
        """How many records have been dealt with."""
        return self._imported.total() + self._skipped.total()

    async def take(self, batch: Sequence[RecordLine]) -> None:
        """Write what is not there yet."""
        kind = batch[0].record.kind
        with _name_failing_line(batch):
            new = await (self._memories(batch) if kind in MEMORY_KINDS else self._plain(batch))
        self._imported[kind] += len(new)
        self._skipped[kind] += len(batch) - len(new)
        if len(new) < len(batch) and not self._merge and kind is not RecordKind.EMBEDDING_VERSION:
            raise Conflict(f"the tenant {self._caller.tenant} is being filled by others", hint="Try it with --merge.")
        if kind in {*MEMORY_KINDS, RecordKind.ENTITY}:
            await self._note({"kind": kind, "imported": len(new), "ids": [str(each) for each in new]})

    async def finished(self) -> ImportReport:
        """What came of it, once what came late is tied to what came early."""
        if self._to_tie:
            await export_import.write_supersedes(self._tx, self._caller, self._to_tie)
        header = self._survey.header
        source = {"tenant": header.tenant, "butler": header.butler, "created_at": header.created_at.isoformat()}
        await self._note({"imported": self._imported, "skipped": self._skipped, "from": source})
        return ImportReport(header, self._imported, self._skipped)

    async def _plain(self, batch: Sequence[RecordLine]) -> Sequence[UUID]:
        kind, values = batch[0].record.kind, [line.values for line in batch]
        return await export_import.insert(self._tx, self._caller, kind, values)

    async def _memories(self, batch: Sequence[RecordLine]) -> Sequence[UUID]:
        await self._know_version()
        kind, records = batch[0].record.kind, [_without_vector(line.values) for line in batch]
        if kind is RecordKind.FACT:
            await self._refuse_rivals(batch, records)
            await self._refuse_buried(batch, records)
            records = [self._untied(record) for record in records]
        made = await self._searchable([line.record for line in batch])
        version = self._memory.embedder.version.id
        new = await export_import.insert_memories(self._tx, self._caller, kind, records, made, version)
        later = self._survey.superseded_later
        self._to_tie |= {each: later[each] for each in new if each in later}
        return new

    async def _know_version(self) -> None:
        """After the versions of the file: one of them may be ours, and keeps the day it was first known."""
        if not self._version_known:
            ours = self._memory.embedder.version
            about = {"model": ours.model, "version": ours.version, "dimensions": ours.dimensions}
            await embedding_versions.register_version(self._tx, self._caller, ours.id, **about)  # type: ignore[arg-type]
            self._version_known = True

    async def _refuse_rivals(self, batch: Sequence[RecordLine], records: Sequence[Mapping[str, Any]]) -> None:
        rival = await export_import.find_key_conflict(self._tx, self._caller, records) if self._merge else None
        if rival:
            number = next(line.number for line in batch if line.values["id"] == str(rival[0]))
            raise Conflict(
                f"line {number}: the tenant already knows another fact with the same key, {rival[1]}",
                hint=f"Nothing was imported. `butlers memory forget DIR fact {rival[1]}` makes room for it.",
            )

    async def _refuse_buried(self, batch: Sequence[RecordLine], records: Sequence[Mapping[str, Any]]) -> None:
        """No live fact comes to an entity that was merged away; a merge waits until the import is done."""
        named = {UUID(record["entity_id"]) for record in records if record["entity_id"]}
        if not named or not await entities.lock_live_all(self._tx, self._caller, named):
            return
        buried = await export_import.find_merged_entity(self._tx, self._caller, records)
        if buried:
            number = next(line.number for line in batch if line.values["id"] == str(buried[0]))
            raise Conflict(
                f"line {number}: its entity {buried[1]} was merged away",
                hint=f"Nothing was imported. `butlers memory entity get DIR {buried[1]}` says into which.",
            )

    def _untied(self, record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "supersedes_id": None} if UUID(record["id"]) in self._survey.superseded_later else record

    async def _searchable(self, records: Iterable[Any]) -> list[SearchableText]:
        """Vectors of the model in use are taken as they are; all others are made anew."""
        memories: list[ExportedMemory] = list(records)
        ours = self._memory.embedder.version.id
        given: dict[UUID, Any] = {
            each.id: export_format.decode_vector(each.embedding)
            for each in memories
            if each.embedding and each.embedding_version_id == ours
        }
        missing = [each for each in memories if each.id not in given]
        made = await self._memory.embedder.embed_batch([each.searchable for each in missing])
        vectors = given | {each.id: vector for each, vector in zip(missing, made, strict=True)}
        return [SearchableText(each.id, truncate_for_index(each.searchable), vectors[each.id]) for each in memories]

    async def _note(self, payload: Mapping[str, Any]) -> None:
        await events.append(self._tx, self._caller, Event("memory_imported", "import", self._id, payload))


def _without_vector(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "embedding"}


def _batches(lines: Iterable[RecordLine]) -> Iterator[list[RecordLine]]:
    """Lines of one kind, as many at once as a statement takes well."""
    batch: list[RecordLine] = []
    size = 0
    for line in lines:
        other = batch and line.record.kind is not batch[0].record.kind
        if other or len(batch) == BATCH or (batch and size + line.size > LARGEST_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.size
    if batch:
        yield batch


@contextmanager
def _name_failing_line(batch: Sequence[RecordLine]) -> Iterator[None]:
    """What the database refuses for reasons of its own is one of these lines."""
    try:
        yield
    except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
        constraint = getattr(error, "constraint_name", None) or type(error).__name__
        raise InvalidExportFile(
            batch[0].number, f"the database refuses it or one of the {len(batch) - 1} lines after it: {constraint}"
        ) from error
