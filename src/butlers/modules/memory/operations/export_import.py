"""Export of a tenant to a file, and import of a file; each is complete or has no effect."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from butlers.modules.memory.operations.batching import Progress, no_progress
from butlers.modules.memory.operations.export_format import (
    ExportedMemory,
    FileIndex,
    Header,
    InvalidExportFile,
    RecordLine,
)
from butlers.modules.memory.runtime import Memory
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

MAX_BATCH_BYTES = 4 * 1024 * 1024
_EXPORT_TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Records imported, and records skipped because they existed."""

    id: UUID
    header: Header
    imported: Mapping[RecordKind, int]
    skipped: Mapping[RecordKind, int]

    @property
    def memories(self) -> int:
        """Number of imported episodes, facts and rules."""
        return sum(self.imported[kind] for kind in MEMORY_KINDS)


async def export_tenant(
    memory: Memory,
    caller: Caller,
    write: Callable[[str], Any],
    *,
    vectors: bool = False,
    progress: Progress = no_progress,
) -> Header:
    """Write all records of a tenant, one line each, as of one moment; return the header."""
    header: Header | None = None
    done = 0
    async with memory.transaction(caller, seconds=_EXPORT_TIMEOUT_SECONDS) as tx:
        await export_import.disable_idle_timeout(tx)
        async for rows in export_import.stream_records(tx, caller, vectors=vectors):
            records = rows
            if header is None:
                header, records = _header(memory, caller, rows[0], vectors=vectors), rows[1:]
                write(header.model_dump_json() + "\n")
            write("".join(_line(row) for row in records))
            done += len(records)
            progress(done, header.records)
    if header is None:
        raise AssertionError("the first row holds the counts")
    return header


def _header(memory: Memory, caller: Caller, counts: ExportRow, *, vectors: bool) -> Header:
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
    # ASCII only: a Unicode line separator in a text must not end the line for any reader.
    return json.dumps(values, separators=(",", ":")) + "\n"


async def import_file(
    memory: Memory, caller: Caller, file: BinaryIO, *, merge: bool = False, progress: Progress = no_progress
) -> ImportReport:
    """Import a file in one transaction, after the whole file was checked.

    Raises `InvalidExportFile` for an invalid line, and `Conflict` or `AlreadyExists` for a tenant in the way.
    """
    index = await asyncio.to_thread(export_format.index_file, file)
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        await lock_target(tx, caller)
        if not merge and await export_import.has_records(tx, caller):
            raise AlreadyExists(
                f"the tenant {caller.tenant} is not empty",
                hint="Name an empty tenant with --tenant, or add to this one with --merge.",
            )
        return await import_indexed(memory, caller, tx, file, index, merge=merge, progress=progress)


async def import_indexed(
    memory: Memory,
    caller: Caller,
    tx: Connection,
    file: BinaryIO,
    index: FileIndex,
    *,
    merge: bool,
    origin: Mapping[str, str] | None = None,
    progress: Progress = no_progress,
) -> ImportReport:
    """Import a file whose records are valid and in order. The caller has locked the tenant with `lock_target`."""
    importer = _Importer(memory, caller, tx, index, merge=merge)
    for batch in _batches(export_format.read_lines(file)):
        await importer.write(batch)
        progress(importer.done, index.header.records)
    return await importer.finish(origin or {})


async def lock_target(tx: Connection, caller: Caller) -> None:
    """Lock the tenant against other imports, and lift the idle limit; raises `Conflict` while another one runs."""
    await export_import.disable_idle_timeout(tx)
    if not await export_import.try_lock_import(tx, caller):
        raise Conflict(
            f"another import into the tenant {caller.tenant} is running", hint="Wait until it has finished."
        )


class _Importer:
    """An import in progress."""

    def __init__(self, memory: Memory, caller: Caller, tx: Connection, index: FileIndex, *, merge: bool) -> None:
        self._memory, self._caller, self._tx = memory, caller, tx
        self._index, self._merge = index, merge
        self._id = uuid4()
        self._imported: Counter[RecordKind] = Counter(dict.fromkeys(RECORD_ORDER, 0))
        self._skipped: Counter[RecordKind] = Counter(dict.fromkeys(RECORD_ORDER, 0))
        self._supersedes: dict[UUID, UUID] = {}

    @property
    def done(self) -> int:
        """Number of records imported or skipped."""
        return self._imported.total() + self._skipped.total()

    async def write(self, batch: Sequence[RecordLine]) -> None:
        """Insert the records of a batch that do not exist yet; raises `Conflict` for others without --merge."""
        kind = batch[0].record.kind
        try:
            if kind in MEMORY_KINDS:
                new = await self._insert_memories(batch)
            else:
                new = await export_import.insert(self._tx, self._caller, kind, [line.values for line in batch])
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError) as error:
            raise _rejected(batch, error) from error
        self._imported[kind] += len(new)
        self._skipped[kind] += len(batch) - len(new)
        if len(new) < len(batch) and not self._merge and kind is not RecordKind.EMBEDDING_VERSION:
            raise Conflict(
                f"others write to the tenant {self._caller.tenant} during the import", hint="Import with --merge."
            )
        if new and kind in {*MEMORY_KINDS, RecordKind.ENTITY}:
            await self._append_event({"kind": kind, "imported": len(new), "ids": [str(each) for each in new]})

    async def finish(self, origin: Mapping[str, str]) -> ImportReport:
        """Write the references to facts that came later in the file, and return the report."""
        if self._supersedes:
            await export_import.write_supersedes(self._tx, self._caller, self._supersedes)
        header = self._index.header
        source = {"tenant": header.tenant, "butler": header.butler, "created_at": header.created_at.isoformat()}
        if self._imported.total():
            await self._append_event(
                {"imported": self._imported, "skipped": self._skipped, "from": {**source, **origin}}
            )
        return ImportReport(self._id, header, self._imported, self._skipped)

    async def _insert_memories(self, batch: Sequence[RecordLine]) -> Sequence[UUID]:
        await self._register_version()
        kind, later = batch[0].record.kind, self._index.superseded_later
        records = [{name: each for name, each in line.values.items() if name != "embedding"} for line in batch]
        if kind is RecordKind.FACT:
            await self._refuse_conflict(batch, records)
            records = [each | {"supersedes_id": None} if UUID(each["id"]) in later else each for each in records]
        texts = await self._embed([line.record for line in batch])
        version = self._memory.embedder.version.id
        new = await export_import.insert_memories(self._tx, self._caller, kind, records, texts, version)
        self._supersedes |= {each: later[each] for each in new if each in later}
        return new

    async def _register_version(self) -> None:
        """Register the embedder's version, after the file's versions: one of those may be it and keeps its date."""
        version = self._memory.embedder.version
        await embedding_versions.register_version(
            self._tx,
            self._caller,
            version.id,
            model=version.model,
            version=version.version,
            dimensions=version.dimensions,
        )

    async def _refuse_conflict(self, batch: Sequence[RecordLine], records: Sequence[Mapping[str, Any]]) -> None:
        """Raise `Conflict` for a live fact with the key of another, or of a merged entity.

        Merges wait until the import ends.
        """
        if self._merge and (conflict := await export_import.find_key_conflict(self._tx, self._caller, records)):
            raise Conflict(
                f"line {_line_of(batch, conflict[0])}: the tenant has another fact with the same key, {conflict[1]}",
                hint=f"Nothing was imported. `butlers memory forget DIR fact {conflict[1]}` frees the key.",
            )
        entity_ids = {UUID(record["entity_id"]) for record in records if record["entity_id"]}
        if not entity_ids or not await entities.lock_live_all(self._tx, self._caller, entity_ids):
            return
        if merged := await export_import.find_merged_entity(self._tx, self._caller, records):
            raise Conflict(
                f"line {_line_of(batch, merged[0])}: its entity {merged[1]} was merged away",
                hint=f"Nothing was imported. `butlers memory entity get DIR {merged[1]}` shows its successor.",
            )

    async def _embed(self, records: Iterable[Any]) -> list[SearchableText]:
        """Return texts with vectors; vectors of the model in use come from the file, all others are embedded."""
        memories: list[ExportedMemory] = list(records)
        version = self._memory.embedder.version.id
        given: dict[UUID, Any] = {
            each.id: export_format.decode_vector(each.embedding)
            for each in memories
            if each.embedding and each.embedding_version_id == version
        }
        missing = [each for each in memories if each.id not in given]
        texts = [each.searchable for each in missing]
        embedded = await self._memory.embedder.embed_batch(texts, tenant=self._caller.tenant)
        vectors = given | {each.id: vector for each, vector in zip(missing, embedded, strict=True)}
        return [SearchableText(each.id, truncate_for_index(each.searchable), vectors[each.id]) for each in memories]

    async def _append_event(self, payload: Mapping[str, Any]) -> None:
        await events.append(self._tx, self._caller, Event("memory_imported", "import", self._id, payload))


def _line_of(batch: Sequence[RecordLine], record_id: UUID) -> int:
    return next(line.number for line in batch if line.values["id"] == str(record_id))


def _batches(lines: Iterable[RecordLine]) -> Iterator[list[RecordLine]]:
    """Yield batches of lines of one kind, limited in number and bytes."""
    batch: list[RecordLine] = []
    size = 0
    for line in lines:
        is_other_kind = batch and line.record.kind is not batch[0].record.kind
        if is_other_kind or len(batch) == BATCH or (batch and size + line.size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += line.size
    if batch:
        yield batch


def _rejected(batch: Sequence[RecordLine], error: Exception) -> InvalidExportFile:
    constraint = getattr(error, "constraint_name", None) or type(error).__name__
    problem = f"the database rejects it or one of the {len(batch) - 1} lines after it: {constraint}"
    return InvalidExportFile(batch[0].number, problem)
