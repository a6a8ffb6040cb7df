"""Conversion of foreign records to records of ours, collected in temporary files with only their ids in memory."""

import hashlib
import json
import math
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, BinaryIO, Literal
from uuid import NAMESPACE_URL, UUID, uuid5

from butlers.errors import InvalidInput
from butlers.memory_formats import (
    ForeignEntity,
    ForeignEpisode,
    ForeignFact,
    ForeignLink,
    ForeignMemory,
    ForeignRecord,
    ForeignRule,
    LeftOut,
    Problem,
)
from butlers.modules.memory.domain.entities import MAX_ALIASES
from butlers.modules.memory.domain.model import (
    MAX_KEY_CHARACTERS,
    MAX_SCOPE_CHARACTERS,
    MAX_TAGS,
    RULE_CONFIDENCE,
    MemoryType,
    NewEpisode,
    NewFact,
    NewRule,
    Permanence,
    normalize_name,
    sanitize_text,
    validate_short_text,
)
from butlers.modules.memory.domain.secrets import redact
from butlers.modules.memory.secret_detector import detect_secrets

MAX_PROBLEMS = 20
"""Problems that a report describes; the others are counted."""
_MAX_SOURCE_ID_CHARACTERS = 300
_MAX_ID_IN_PROBLEM = 80
_SUFFIX_CHARACTERS = 9
_DEFAULT_IMPORTANCE = 5.0
_HALF_LIFE = timedelta(days=math.log(2) / Permanence.STABLE.decay_rate)
_KINDS = {ForeignEpisode: MemoryType.EPISODE, ForeignFact: MemoryType.FACT, ForeignRule: MemoryType.RULE}
_TEXTS = ("subject", "predicate", "content", "canonical_name", "aliases", "tags")
Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """How an import stores what it brings."""

    format: str
    file: str
    butler: str
    now: datetime
    scope: str = "global"
    user: str | None = None
    is_fresh: bool = False
    consolidates: bool = False
    has_personas: bool = False
    secrets: Literal["redact", "refuse", "keep"] = "redact"

    def id_of(self, source_id: str) -> UUID:
        """Return the id of a record, the same for every import of the same record."""
        digest = source_id if len(source_id) <= _MAX_SOURCE_ID_CHARACTERS else _digest(source_id)
        return uuid5(uuid5(NAMESPACE_URL, f"butlers:import:{self.format}"), digest)


@dataclass(slots=True)
class CollectedRecords:
    """The converted records of a source: memories in temporary files, entities and ids in memory."""

    options: ImportOptions
    files: dict[MemoryType, BinaryIO]
    entities: dict[UUID, Values] = field(default_factory=dict)
    kinds: dict[UUID, MemoryType] = field(default_factory=dict)
    links: dict[tuple[UUID, UUID], str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    """The kinds of the secrets that were taken out of memories."""
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0

    def read(self, kind: MemoryType) -> Iterator[Values]:
        """Yield the memories of a kind."""
        file = self.files[kind]
        file.seek(0)
        yield from (json.loads(line) for line in file)

    def close(self) -> None:
        """Delete the temporary files."""
        for file in self.files.values():
            file.close()


def collect(records: Iterable[ForeignRecord], options: ImportOptions) -> CollectedRecords:
    """Return the converted records; those that can't be stored are problems, and copies are left out."""
    files: dict[MemoryType, BinaryIO] = {
        kind: tempfile.TemporaryFile()  # noqa: SIM115 — closed by `close`
        for kind in MemoryType
    }
    collected = CollectedRecords(options, files)
    try:
        for record in records:
            _add(collected, record)
    except BaseException:
        collected.close()
        raise
    _drop_dangling_links(collected)
    return collected


def _add(collected: CollectedRecords, record: ForeignRecord) -> None:
    try:
        match record:
            case LeftOut():
                collected.left_out[record.reason] += 1
            case Problem():
                _add_problem(collected, record)
            case ForeignEntity():
                _add_entity(collected, record)
            case ForeignLink():
                ends = collected.options.id_of(record.source), collected.options.id_of(record.target)
                collected.links.setdefault(ends, record.relation)
            case _:
                _add_memory(collected, record)
    except InvalidInput as fault:
        name = record.name if isinstance(record, ForeignEntity) else getattr(record, "id", "")
        _add_problem(collected, Problem(" ".join(str(name)[:_MAX_ID_IN_PROBLEM].split()), fault.message))


def _add_problem(collected: CollectedRecords, problem: Problem) -> None:
    collected.problem_count += 1
    if len(collected.problems) < MAX_PROBLEMS:
        collected.problems.append(problem)


def _add_entity(collected: CollectedRecords, entity: ForeignEntity) -> UUID:
    """Add an entity, or add to the one with the same name; return its id."""
    name = validate_short_text("name", entity.name, MAX_KEY_CHARACTERS)
    entity_id = collected.options.id_of(f"entity\n{name.lower()}")
    known = collected.entities.get(entity_id)
    if known is None:
        values = _entity_values(collected.options, entity_id, name, entity)
        collected.entities[entity_id] = _without_secrets(collected, values)
        return entity_id
    if known["entity_type"] == "other":
        known["entity_type"] = entity.entity_type
    aliases = [*known["aliases"], *map(normalize_name, entity.aliases)]
    known["aliases"] = [each for each in dict.fromkeys(aliases) if each and each != known["canonical_name"]]
    del known["aliases"][MAX_ALIASES:]
    return entity_id


def _entity_values(options: ImportOptions, entity_id: UUID, name: str, entity: ForeignEntity) -> Values:
    source = {"format": options.format, "id": name, "file": options.file}
    return {
        "kind": "entity",
        "id": str(entity_id),
        "canonical_name": name,
        "entity_type": entity.entity_type,
        "aliases": [each for each in map(normalize_name, entity.aliases[:MAX_ALIASES]) if each and each != name],
        "metadata": {**_clean(entity.metadata), "source": source},
        "created_at": options.now.isoformat(),
        "updated_at": options.now.isoformat(),
    }


def _add_memory(collected: CollectedRecords, memory: ForeignMemory) -> None:
    options, kind = collected.options, _KINDS[type(memory)]
    if options.user is not None and isinstance(memory, ForeignFact) and memory.subject != options.user:
        collected.left_out["a memory of another user"] += 1
        return
    if isinstance(memory, ForeignRule) and memory.is_persona and not options.has_personas:
        collected.left_out["the persona of an agent; --personas imports it"] += 1
        return
    memory_id = options.id_of(memory.id)
    if memory_id in collected.kinds:
        collected.left_out["a second memory with the same id"] += 1
        return
    if isinstance(memory, ForeignFact):
        entity_id = _add_entity(collected, ForeignEntity(name=memory.entity)) if memory.entity else None
        values = _fact_values(options, memory) | {"entity_id": str(entity_id) if entity_id else None}
    elif isinstance(memory, ForeignRule):
        values = _rule_values(options, memory)
    else:
        values = _episode_values(options, memory)
    values = _without_secrets(collected, values)
    collected.kinds[memory_id] = kind
    collected.files[kind].write(json.dumps(values | {"id": str(memory_id)}).encode() + b"\n")


def _fact_values(options: ImportOptions, fact: ForeignFact) -> Values:
    room = MAX_KEY_CHARACTERS - _SUFFIX_CHARACTERS
    checked = NewFact(
        subject=fact.subject,
        predicate=normalize_name(fact.predicate)[: room // 2] or "note",
        content=fact.content,
        scope=options.scope,
        tags=_tags(fact.tags),
    )
    permanence = Permanence.VOLATILE if fact.is_volatile else Permanence.STABLE
    return _decaying_values(options, fact, permanence) | {
        "kind": "fact",
        "subject": checked.subject,
        "predicate": checked.predicate,
        "content": checked.content,
        "importance": _DEFAULT_IMPORTANCE if fact.importance is None else fact.importance,
        "confidence": 1.0,
        "supersedes_id": None,
        "validity": "active",
        "tags": list(checked.tags),
    }


def _rule_values(options: ImportOptions, rule: ForeignRule) -> Values:
    checked = NewRule(content=rule.content, scope=options.scope, tags=_tags(rule.tags))
    return _decaying_values(options, rule, Permanence.STABLE) | {
        "kind": "rule",
        "content": checked.content,
        "maturity": "candidate",
        "confidence": RULE_CONFIDENCE,
        "effectiveness_score": 0.0,
        "applied_count": 0,
        "success_count": 0,
        "harmful_count": 0,
        "last_applied_at": None,
        "last_evaluated_at": None,
        "tags": list(checked.tags),
    }


def _episode_values(options: ImportOptions, episode: ForeignEpisode) -> Values:
    """Return an episode that does not expire and, unless asked for, is not consolidated: that calls a model."""
    checked = NewEpisode(content=episode.content, butler=options.butler)
    return _memory_values(options, episode) | {
        "kind": "episode",
        "content": checked.content,
        "butler": checked.butler,
        "session_id": str(_session_id(options, episode.session)) if episode.session else None,
        "importance": _DEFAULT_IMPORTANCE if episode.importance is None else episode.importance,
        "consolidation_status": "pending" if options.consolidates else "consolidated",
        "consolidation_attempts": 0,
        "last_consolidation_error": None,
        "next_consolidation_retry_at": None,
        "expires_at": None,
    }


def _session_id(options: ImportOptions, session: str) -> UUID:
    try:
        return UUID(session)
    except ValueError:
        return options.id_of(f"session\n{session}")


def _decaying_values(options: ImportOptions, memory: ForeignFact | ForeignRule, permanence: Permanence) -> Values:
    said_at = memory.updated_at or memory.created_at or options.now
    # Nothing arrives with less than half of its confidence: a sweep would expire what is much older.
    confirmed_at = options.now if options.is_fresh else min(max(said_at, options.now - _HALF_LIFE), options.now)
    return _memory_values(options, memory) | {
        "scope": options.scope,
        "permanence": permanence,
        "decay_rate": permanence.decay_rate,
        "source_butler": None,
        "source_episode_id": None,
        "last_confirmed_at": confirmed_at.isoformat(),
    }


def _memory_values(options: ImportOptions, memory: ForeignMemory) -> Values:
    created_at = min(memory.created_at or memory.updated_at or options.now, options.now)
    id_ = sanitize_text(memory.id)
    source: Values = {
        "format": options.format,
        "id": id_ if len(id_) <= _MAX_SOURCE_ID_CHARACTERS else _digest(id_),
        "file": options.file,
    }
    if memory.metadata:
        source["metadata"] = _clean(memory.metadata)
    if memory.updated_at:
        source["updated_at"] = memory.updated_at.isoformat()
    return {
        "created_at": created_at.isoformat(),
        "reference_count": 0,
        "last_referenced_at": options.now.isoformat(),
        # Below one key: other keys of our metadata have a meaning, which no file may set.
        "metadata": {"source": source},
        "embedding_version_id": None,
    }


def _without_secrets(collected: CollectedRecords, values: Values) -> Values:
    """Return a record whose texts have no secret; raises `InvalidInput` where the configuration refuses secrets."""
    # All texts at once: most records have no secret, and each search gives other threads a turn.
    if collected.options.secrets == "keep" or not detect_secrets("\n".join(_strings(values))):
        return values
    found: Counter[str] = Counter()
    redacted = {name: _redact(value, found) if name in _TEXTS else value for name, value in values.items()}
    if found and collected.options.secrets == "refuse":
        raise InvalidInput(f"it contains a secret: {', '.join(sorted(found))}")
    collected.redacted.update(found)
    # The metadata may hold the same text once more.
    return redacted | {"metadata": _redact(values["metadata"], Counter())}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _redact(value: Any, found: Counter[str]) -> Any:
    if isinstance(value, str):
        secrets = detect_secrets(value)
        found.update(each.kind for each in secrets)
        return redact(value, secrets) if secrets else value
    if isinstance(value, list):
        return [_redact(each, found) for each in value]
    if isinstance(value, dict):
        return {name: _redact(each, found) for name, each in value.items()}
    return value


def _clean(metadata: Any) -> Any:
    """Return metadata whose texts PostgreSQL can store."""
    if isinstance(metadata, str):
        return sanitize_text(metadata)
    if isinstance(metadata, (list, tuple)):
        return [_clean(each) for each in metadata]
    if isinstance(metadata, dict):
        return {sanitize_text(str(name)): _clean(each) for name, each in metadata.items()}
    return metadata


def _tags(tags: Iterable[str]) -> tuple[str, ...]:
    short = (normalize_name(each)[: MAX_SCOPE_CHARACTERS // 2] for each in tags)
    return tuple(dict.fromkeys(each.strip() for each in short if each.strip()))[:MAX_TAGS]


def _drop_dangling_links(collected: CollectedRecords) -> None:
    known = collected.kinds
    dangling = [ends for ends in collected.links if ends[0] == ends[1] or not known.keys() >= set(ends)]
    for ends in dangling:
        del collected.links[ends]
    if dangling:
        collected.left_out["a link to a memory that is not in the file"] += len(dangling)


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()
