"""The form of an exported memory: a header and one record a line, checked to the last before any is believed."""

import base64
import hashlib
import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_serializer,
    field_validator,
)
from pydantic_core import from_json

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import MAX_IMPORTANCE, Maturity, MemoryType, Permanence, Relation, fact_text
from butlers.modules.memory.domain.text import one_line
from butlers.modules.memory.store.export_import import RECORD_ORDER, RecordKind

if TYPE_CHECKING:
    import numpy as np

FORMAT = "butlers-memory"
VERSION = 1
DIMENSIONS = 384
LONGEST_LINE = 32 * 1024 * 1024

Text = Annotated[str, Field(pattern=r"\S")]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Share = Annotated[float, Field(ge=0, le=1)]
Importance = Annotated[float, Field(ge=0, le=MAX_IMPORTANCE)]
Rate = Annotated[float, Field(ge=0)]
Object = dict[str, Any]


class InvalidExportFile(InvalidInput):
    """A line that can't be what was exported."""

    hint = "Nothing was imported. Export anew, or mend that line."

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {one_line(problem)}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Header(_Strict):
    """The first line: what the file is, and how much has to follow."""

    format: Literal["butlers-memory"]
    version: int
    butler: str
    tenant: str
    created_at: AwareDatetime
    vectors: bool
    counts: dict[RecordKind, Annotated[int, Field(ge=0)]]

    @field_serializer("created_at")
    def _with_offset(self, moment: datetime) -> str:
        return moment.isoformat()

    @property
    def memories(self) -> int:
        """How many episodes, facts and rules there are."""
        return sum(self.counts.get(kind, 0) for kind in (RecordKind.EPISODE, RecordKind.FACT, RecordKind.RULE))

    @property
    def records(self) -> int:
        """How many lines follow."""
        return sum(self.counts.values())


class _Identified(_Strict):
    id: UUID

    @property
    def keys(self) -> Iterable[Hashable]:
        """What no other record of the kind may have as well."""
        return (self.id.int,)

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        """What has to be there for this to be true."""
        return ()


class _EmbeddingVersion(_Identified):
    kind: Literal[RecordKind.EMBEDDING_VERSION]
    model: Text
    version: Text
    dimensions: Annotated[int, Field(gt=0, lt=2**31)]
    created_at: AwareDatetime

    @property
    def keys(self) -> Iterable[Hashable]:
        return (self.id.int, _digest(self.model, self.version))


class _Entity(_Identified):
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


class _Embedded(_Identified):
    content: Text
    created_at: AwareDatetime
    reference_count: Count
    last_referenced_at: AwareDatetime | None
    metadata: Object
    embedding_version_id: UUID | None
    embedding: str | None = None

    @field_validator("embedding")
    @classmethod
    def _points_somewhere(cls, encoded: str | None) -> str | None:
        if encoded is not None:
            decode_vector(encoded)
        return encoded

    @property
    def searchable(self) -> str:
        """What is embedded and indexed."""
        return self.content

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        return ((RecordKind.EMBEDDING_VERSION, self.embedding_version_id),)


class _Episode(_Embedded):
    kind: Literal[RecordKind.EPISODE]
    butler: Text
    session_id: UUID | None
    importance: Importance
    consolidation_status: Literal["pending", "consolidated", "failed", "dead_letter"]
    consolidation_attempts: Count
    last_consolidation_error: str | None
    next_consolidation_retry_at: AwareDatetime | None
    expires_at: AwareDatetime | None


class _Believed(_Embedded):
    scope: Text
    confidence: Share
    decay_rate: Rate
    permanence: Permanence
    source_butler: str | None
    source_episode_id: UUID | None
    last_confirmed_at: AwareDatetime | None
    tags: list[Any]

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        return (*super().names, (RecordKind.EPISODE, self.source_episode_id))


class _Fact(_Believed):
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
        about = (str(self.entity_id),) if self.entity_id else ("", self.subject)
        return (self.id.int, _digest(self.scope, self.predicate, *about))

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        return (*super().names, (RecordKind.ENTITY, self.entity_id), (RecordKind.FACT, self.supersedes_id))


class _Rule(_Believed):
    kind: Literal[RecordKind.RULE]
    maturity: Maturity
    effectiveness_score: Share
    applied_count: Count
    success_count: Count
    harmful_count: Count
    last_applied_at: AwareDatetime | None
    last_evaluated_at: AwareDatetime | None


class _Link(_Strict):
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

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        # A link outlives the episode it leads to.
        return ()


class _RuleApplication(_Identified):
    kind: Literal[RecordKind.RULE_APPLICATION]
    rule_id: UUID
    outcome: Literal["helpful", "harmful"]
    applied_at: AwareDatetime
    actor: str | None
    session_id: UUID | None
    request_id: str | None
    context: Object

    @property
    def names(self) -> Iterable[tuple[RecordKind, UUID | None]]:
        return ((RecordKind.RULE, self.rule_id),)


class _Event(_Identified):
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
_record: TypeAdapter[ExportedRecord] = TypeAdapter(Annotated[ExportedRecord, Field(discriminator="kind")])


@dataclass(frozen=True, slots=True)
class RecordLine:
    """A record as it stands in the file, and as it was understood."""

    number: int
    size: int
    record: ExportedRecord
    values: dict[str, Any]


@dataclass(slots=True)
class FileIndex:
    """What a whole file says: its header, and the facts that come before what they superseded."""

    header: Header
    superseded_later: dict[UUID, UUID] = field(default_factory=dict)


def encode_vector(vector: Any) -> str:
    """A vector as text: its 32-bit numbers, little end first, in base64."""
    import numpy as np

    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def decode_vector(text: str) -> "np.ndarray[Any, Any]":
    """The vector of a text; one without length or of other dimensions is none."""
    import numpy as np

    try:
        numbers = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f4")
    except ValueError:
        raise ValueError("it is not base64 of 32-bit numbers") from None
    if numbers.shape != (DIMENSIONS,):
        raise ValueError(f"it has {len(numbers)} dimensions instead of {DIMENSIONS}")
    if not 0 < float(np.linalg.norm(numbers.astype(np.float64))) < math.inf:
        raise ValueError("it points nowhere")
    return numbers


def index_file(file: BinaryIO) -> FileIndex:
    """Read a whole file and refuse it at the first line that is not right; of each record only its id is kept."""
    header, number = _read_header(file), 1
    survey, ledger = FileIndex(header), _SeenRecords()
    for line in read_lines(file):
        number = line.number
        ledger.enter(line)
    for kind in RECORD_ORDER:
        told, found = header.counts.get(kind, 0), ledger.count(kind)
        if told != found:
            raise InvalidExportFile(
                number, f"the file ends here, and of {told} records of kind {kind} it has {found}"
            )
    survey.superseded_later.update(ledger.resolved())
    return survey


def read_lines(file: BinaryIO) -> Iterator[RecordLine]:
    """Every record of a file, from its beginning."""
    file.seek(0)
    _read_line(file, 1)
    number = 1
    while raw := _read_line(file, number := number + 1):
        values = _parse_json(raw, number)
        try:
            record = _record.validate_json(raw)
        except ValidationError as error:
            raise InvalidExportFile(number, _first_problem(error)) from None
        yield RecordLine(number, len(raw), record, values)


class _SeenRecords:
    """Who has been seen so far."""

    def __init__(self) -> None:
        self._keys: dict[RecordKind, set[Hashable]] = {kind: set() for kind in RECORD_ORDER}
        self._counts = dict.fromkeys(RECORD_ORDER, 0)
        self._last = 0
        self._waiting: dict[UUID, tuple[int, UUID]] = {}

    def count(self, kind: RecordKind) -> int:
        return self._counts[kind]

    def enter(self, line: RecordLine) -> None:
        kind = line.record.kind
        if RECORD_ORDER.index(kind) < self._last:
            raise InvalidExportFile(
                line.number, f"a record of kind {kind} after one of kind {RECORD_ORDER[self._last]}"
            )
        self._last = RECORD_ORDER.index(kind)
        self._counts[kind] += 1
        for key in line.record.keys:
            if key in self._keys[kind]:
                raise InvalidExportFile(line.number, f"another {kind} has the same id or key")
            self._keys[kind].add(key)
        for named, named_id in line.record.names:
            if named_id is not None and named_id.int not in self._keys[named]:
                self._missing(line, named, named_id)

    def resolved(self) -> dict[UUID, UUID]:
        """Facts that came before what they superseded, which came as well."""
        for number, named_id in self._waiting.values():
            if named_id.int not in self._keys[RecordKind.FACT]:
                raise InvalidExportFile(number, f"it names the fact {named_id}, which is not in the file")
        return {fact_id: named_id for fact_id, (_, named_id) in self._waiting.items()}

    def _missing(self, line: RecordLine, named: RecordKind, named_id: UUID) -> None:
        if named is not RecordKind.FACT or not isinstance(line.record, _Fact):
            raise InvalidExportFile(
                line.number, f"it names the {named} {named_id}, which is not before it in the file"
            )
        self._waiting[line.record.id] = (line.number, named_id)


def _read_header(file: BinaryIO) -> Header:
    file.seek(0)
    raw = _read_line(file, 1)
    values = _parse_json(raw, 1)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InvalidExportFile(1, "this is not an exported memory")
    if values.get("version") != VERSION:
        raise InvalidExportFile(
            1, f"its format has version {values.get('version')}, and version {VERSION} is understood"
        )
    try:
        return Header.model_validate_json(raw)
    except ValidationError as error:
        raise InvalidExportFile(1, _first_problem(error)) from None


def _read_line(file: BinaryIO, number: int) -> bytes:
    raw = file.readline(LONGEST_LINE + 1)
    if len(raw) > LONGEST_LINE:
        raise InvalidExportFile(number, "it is too long for a record")
    return raw


def _parse_json(raw: bytes, number: int) -> Any:
    try:
        values = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise InvalidExportFile(number, "it is not JSON, or it was cut off") from None
    if b"\\u0000" in raw and _has_nul(values):
        raise InvalidExportFile(number, "it has a NUL character")
    return values


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\x00" in name or _has_nul(each) for name, each in value.items())
    if isinstance(value, list):
        return any(_has_nul(each) for each in value)
    return isinstance(value, str) and "\x00" in value


def _first_problem(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    detail = error.errors(include_url=False, include_input=False)[0]
    kinds = {str(kind) for kind in RecordKind}
    where = ".".join(str(part) for part in detail["loc"] if str(part) not in kinds)
    return f"{where}: {detail['msg']}" if where else detail["msg"]


def _digest(*parts: str) -> bytes:
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).digest()
