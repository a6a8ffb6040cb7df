"""Format of an export file: a header and one record per line, with the checks of a whole file."""

import base64
import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, ClassVar, Literal
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    field_validator,
)
from pydantic_core import from_json

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import MAX_IMPORTANCE, Maturity, MemoryType, Permanence, Relation, fact_text
from butlers.modules.memory.store.export_import import MEMORY_KINDS, RECORD_ORDER, RecordKind
from butlers.prompt_text import fold_line

if TYPE_CHECKING:
    import numpy as np

FORMAT = "butlers-memory"
VERSION = 1
DIMENSIONS = 384
MAX_LINE_BYTES = 32 * 1024 * 1024

Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Share = Annotated[float, Field(ge=0, le=1)]
Importance = Annotated[float, Field(ge=0, le=MAX_IMPORTANCE)]
Rate = Annotated[float, Field(ge=0)]
Object = dict[str, Any]


class InvalidExportFile(InvalidInput):
    """A line that is not valid in an export file."""

    hint = "Nothing was imported. Fix that line, or export again."

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {fold_line(problem)}")


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Header(_StrictModel):
    """First line of the file: its format, its origin and the number of records of each kind."""

    format: Literal["butlers-memory"]
    version: int
    butler: str
    tenant: str
    created_at: Annotated[AwareDatetime, PlainSerializer(datetime.isoformat)]
    vectors: bool
    counts: dict[RecordKind, Annotated[int, Field(ge=0)]]

    @property
    def memories(self) -> int:
        """Number of episodes, facts and rules."""
        return sum(self.counts.get(kind, 0) for kind in MEMORY_KINDS)

    @property
    def records(self) -> int:
        """Number of lines after the header."""
        return sum(self.counts.values())


class _RecordWithId(_StrictModel):
    references: ClassVar[Mapping[str, RecordKind]] = {}
    """Fields that name a record, and its kind; that record must be in the file before this one."""
    id: UUID

    @property
    def keys(self) -> Iterable[Hashable]:
        """Keys that are unique among the records of this kind."""
        return (self.id.int,)


class _EmbeddingVersion(_RecordWithId):
    kind: Literal[RecordKind.EMBEDDING_VERSION]
    model: Text
    version: Text
    dimensions: Annotated[int, Field(gt=0, lt=2**31)]
    created_at: AwareDatetime

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self.id.int, _digest(self.model, self.version))


class _Entity(_RecordWithId):
    kind: Literal[RecordKind.ENTITY]
    canonical_name: Text
    entity_type: Literal["person", "organization", "place", "other"]
    aliases: list[str]
    metadata: Object
    created_at: AwareDatetime
    updated_at: AwareDatetime

    @property
    def keys(self) -> Iterable[Hashable]:
        live = () if "merged_into" in self.metadata else (_digest("", self.canonical_name.lower(), self.entity_type),)
        return (self.id.int, _digest(self.canonical_name, self.entity_type), *live)


class _MemoryRecord(_RecordWithId):
    references = {"embedding_version_id": RecordKind.EMBEDDING_VERSION}
    content: Text
    created_at: AwareDatetime
    reference_count: Count
    last_referenced_at: AwareDatetime | None
    metadata: Object
    embedding_version_id: UUID | None
    embedding: str | None = None

    @field_validator("embedding")
    @classmethod
    def _validate_vector(cls, encoded: str | None) -> str | None:
        if encoded is not None:
            decode_vector(encoded)
        return encoded

    @property
    def searchable(self) -> str:
        """Text that is embedded and indexed."""
        return self.content


class _Episode(_MemoryRecord):
    kind: Literal[RecordKind.EPISODE]
    butler: Text
    session_id: UUID | None
    importance: Importance
    consolidation_status: Literal["pending", "consolidated", "failed", "dead_letter"]
    consolidation_attempts: Count
    last_consolidation_error: str | None
    next_consolidation_retry_at: AwareDatetime | None
    expires_at: AwareDatetime | None


class _DecayingMemory(_MemoryRecord):
    references = {**_MemoryRecord.references, "source_episode_id": RecordKind.EPISODE}
    scope: Text
    confidence: Share
    decay_rate: Rate
    permanence: Permanence
    source_butler: str | None
    source_episode_id: UUID | None
    last_confirmed_at: AwareDatetime | None
    tags: list[Any]


class _Fact(_DecayingMemory):
    references = {**_DecayingMemory.references, "entity_id": RecordKind.ENTITY, "supersedes_id": RecordKind.FACT}
    kind: Literal[RecordKind.FACT]
    subject: Text
    predicate: Text
    importance: Importance
    supersedes_id: UUID | None
    entity_id: UUID | None
    validity: Literal["active", "fading", "superseded", "expired", "retracted"]

    @property
    def searchable(self) -> str:
        return fact_text(self.subject, self.predicate, self.content)

    @property
    def keys(self) -> Iterable[Hashable]:
        if self.validity not in {"active", "fading"}:
            return (self.id.int,)
        owner = (str(self.entity_id),) if self.entity_id else ("", self.subject)
        return (self.id.int, _digest(self.scope, self.predicate, *owner))


class _Rule(_DecayingMemory):
    kind: Literal[RecordKind.RULE]
    maturity: Maturity
    effectiveness_score: Share
    applied_count: Count
    success_count: Count
    harmful_count: Count
    last_applied_at: AwareDatetime | None
    last_evaluated_at: AwareDatetime | None


class _Link(_StrictModel):
    # A link stays when the episode it points to is deleted.
    references: ClassVar[Mapping[str, RecordKind]] = {}
    kind: Literal[RecordKind.LINK]
    source_type: MemoryType
    source_id: UUID
    target_type: MemoryType
    target_id: UUID
    relation: Relation
    created_at: AwareDatetime

    @property
    def keys(self) -> Iterable[Hashable]:
        return (_digest(self.source_type, str(self.source_id), self.target_type, str(self.target_id)),)


class _RuleApplication(_RecordWithId):
    references = {"rule_id": RecordKind.RULE}
    kind: Literal[RecordKind.RULE_APPLICATION]
    rule_id: UUID
    outcome: Literal["helpful", "harmful"]
    applied_at: AwareDatetime
    actor: str | None
    session_id: UUID | None
    request_id: str | None
    context: Object


class _Event(_RecordWithId):
    kind: Literal[RecordKind.EVENT]
    event_type: Text
    entity_type: str | None
    entity_id: UUID | None
    actor: str | None
    request_id: str | None
    payload: Object
    occurred_at: AwareDatetime


ExportedRecord = _EmbeddingVersion | _Entity | _Episode | _Fact | _Rule | _Link | _RuleApplication | _Event
ExportedMemory = _Episode | _Fact | _Rule
_record_adapter: TypeAdapter[ExportedRecord] = TypeAdapter(Annotated[ExportedRecord, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A line of the file, as a validated record and as raw values."""

    number: int
    size: int
    record: ExportedRecord
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileIndex:
    """Header of a checked file, and the facts that precede the facts they supersede."""

    header: Header
    superseded_later: dict[UUID, UUID]


def encode_vector(vector: Any) -> str:
    """Return a vector as base64 of little-endian 32-bit floats."""
    import numpy as np

    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def decode_vector(text: str) -> "np.ndarray[Any, Any]":
    """Return the vector of a text; raises `ValueError` for wrong dimensions or a norm of zero or infinity."""
    import numpy as np

    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except ValueError:
        raise ValueError("it is not base64 of 32-bit floats") from None
    if numbers.shape != (DIMENSIONS,):
        raise ValueError(f"it has {len(numbers)} dimensions instead of {DIMENSIONS}")
    if not 0 < float(np.linalg.norm(numbers.astype(np.float64))) < math.inf:
        raise ValueError("its norm is zero or not finite")
    return numbers


def index_file(file: BinaryIO) -> FileIndex:
    """Check a whole file; raises `InvalidExportFile` at the first invalid line. Only keys are held in memory."""
    header, number = _read_header(file), 1
    seen = _SeenRecords()
    for line in read_lines(file):
        number = line.number
        seen.add(line)
    for kind in RECORD_ORDER:
        expected, found = header.counts.get(kind, 0), seen.counts[kind]
        if expected != found:
            raise InvalidExportFile(number, f"the file ends here with {found} of {expected} records of kind {kind}")
    return FileIndex(header, seen.superseded_later())


def read_lines(file: BinaryIO) -> Iterator[RecordLine]:
    """Yield every record of a file; raises `InvalidExportFile`."""
    file.seek(0)
    _read_line(file, 1)
    number = 1
    while raw := _read_line(file, number := number + 1):
        values = _parse_json(raw, number)
        try:
            record = _record_adapter.validate_json(raw)
        except ValidationError as error:
            raise InvalidExportFile(number, _first_problem(error)) from None
        yield RecordLine(number, len(raw), record, values)


class _SeenRecords:
    """Keys and counts of the records read so far."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(RECORD_ORDER, 0)
        self._keys: dict[RecordKind, set[Hashable]] = {kind: set() for kind in RECORD_ORDER}
        self._last_index = 0
        self._unresolved: dict[UUID, tuple[int, UUID]] = {}

    def add(self, line: RecordLine) -> None:
        """Add a line; raises `InvalidExportFile` for a wrong order, a repeated key or a missing reference."""
        kind = line.record.kind
        if RECORD_ORDER.index(kind) < self._last_index:
            last_kind = RECORD_ORDER[self._last_index]
            raise InvalidExportFile(line.number, f"a record of kind {kind} after one of kind {last_kind}")
        self._last_index = RECORD_ORDER.index(kind)
        self.counts[kind] += 1
        for key in line.record.keys:
            if key in self._keys[kind]:
                raise InvalidExportFile(line.number, f"another {kind} has the same id or key")
            self._keys[kind].add(key)
        for field, target_kind in line.record.references.items():
            target_id: UUID | None = getattr(line.record, field)
            if target_id is None or target_id.int in self._keys[target_kind]:
                continue
            if target_kind is not RecordKind.FACT or not isinstance(line.record, _Fact):
                problem = f"it names the {target_kind} {target_id}, which is not before it in the file"
                raise InvalidExportFile(line.number, problem)
            self._unresolved[line.record.id] = (line.number, target_id)

    def superseded_later(self) -> dict[UUID, UUID]:
        """Return the facts that precede the fact they supersede; raises `InvalidExportFile` when that is missing."""
        for number, target_id in self._unresolved.values():
            if target_id.int not in self._keys[RecordKind.FACT]:
                raise InvalidExportFile(number, f"it names the fact {target_id}, which is not in the file")
        return {fact_id: target_id for fact_id, (_, target_id) in self._unresolved.items()}


def _read_header(file: BinaryIO) -> Header:
    file.seek(0)
    raw = _read_line(file, 1)
    values = _parse_json(raw, 1)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidExportFile(1, "this is not an export file")
    if values.get("version") != VERSION:
        raise InvalidExportFile(
            1, f"the file has format version {values.get('version')}; this butler reads version {VERSION}"
        )
    try:
        return Header.model_validate_json(raw)
    except ValidationError as error:
        raise InvalidExportFile(1, _first_problem(error)) from None


def _read_line(file: BinaryIO, number: int) -> bytes:
    raw = file.readline(MAX_LINE_BYTES + 1)
    if len(raw) > MAX_LINE_BYTES:
        raise InvalidExportFile(number, f"it is longer than {MAX_LINE_BYTES} bytes")
    return raw


def _parse_json(raw: bytes, number: int) -> Any:
    try:
        values = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise InvalidExportFile(number, "it is not valid JSON; the file may be cut off") from None
    if b"\\u0000" in raw and _has_nul(values):
        raise InvalidExportFile(number, "it contains a NUL character")
    return values


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\x00" in name or _has_nul(each) for name, each in value.items())
    if isinstance(value, list):
        return any(_has_nul(each) for each in value)
    return isinstance(value, str) and "\x00" in value


def _first_problem(error: ValidationError) -> str:
    detail = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in detail["loc"] if part not in RECORD_ORDER)
    return f"{where}: {detail['msg']}" if where else detail["msg"]


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
