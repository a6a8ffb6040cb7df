"""Events of the audit trail as sentences."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from butlers.modules.memory.operations.undo import may_have_inverse

CONSOLIDATION = "consolidation"
_MAX_SINGLE = 3
"""More events of one type in one request become one sentence with their number."""


class Sentence(NamedTuple):
    """The words before and after the memory that an event is about."""

    before: str
    after: str = ""


_DONE = {
    "created": "stored",
    "confirmed": "confirmed",
    "confirmation_withdrawn": "took back a confirmation of",
    "forgotten": "forgot",
    "restored": "restored",
    "erased": "erased",
    "edited": "edited",
    "updated": "changed",
    "looked_at": "looked at",
    "marked_helpful": "marked",
    "marked_harmful": "marked",
    "consolidated": "read",
    "requeued": "queued",
    "superseded": "replaced",
    "related": "kept",
    "inversion_reverted": "made",
}
_AFTER = {
    "marked_helpful": "as helpful",
    "marked_harmful": "as harmful",
    "requeued": "again",
    "related": "beside a similar one",
    "inversion_reverted": "a rule again",
}
_UNDONE = "_undone"
_HAPPENED = {
    "fading": "began to fade",
    "recovered": "no longer fades",
    "expired": "expired",
    "crowded_out": "was deleted to make room",
    "inverted": "became a warning",
}
_WHOLE = {
    "memory_imported": "imported memories",
    "embeddings_renewed": "renewed vectors",
    "tenant_erased": "erased the tenant",
    "browser_session_ended": "ended a browser session",
}


def describe(event: Mapping[str, Any]) -> Sentence:
    """Return an event as a sentence around the memory it is about."""
    event_type, payload, actor = event["event_type"], event["payload"], event["actor"] or "somebody"
    change = event_type.partition("_")[2]
    if event_type in _WHOLE:
        return Sentence(f"{actor} {_WHOLE[event_type]}")
    if event_type == "job_requested":
        return Sentence(f"{actor} started the job {payload.get('job', '')}")
    if event_type == "entity_merge":
        return Sentence(f"{actor} merged an entity into", _counted(payload.get("facts_repointed"), " facts moved"))
    if change.endswith(_UNDONE):
        undone = change.removesuffix(_UNDONE)
        return Sentence(f"{actor} took back a change of", f"({_DONE.get(undone, undone.replace('_', ' '))})")
    if change in _HAPPENED or (change == "forgotten" and payload.get("by") == "decay"):
        return Sentence(f"{actor}:", f"{_HAPPENED.get(change, 'expired')}{_number(payload, ' at {:.2f}')}")
    verb = (
        "learned" if change == "created" and actor == CONSOLIDATION else _DONE.get(change, change.replace("_", " "))
    )
    words = [_AFTER.get(change, ""), _numbers(payload)]
    return Sentence(f"{actor} {verb}", ", ".join(each for each in words if each))


def _numbers(payload: Mapping[str, Any]) -> str:
    """Return the numbers that an event set, in words."""
    parts = [_number(payload, "confidence {:.2f}"), _number(payload, "effectiveness {:.2f}", "effectiveness")]
    before, after = payload.get("maturity_before"), payload.get("maturity")
    if after and before and after != before:
        parts.append(f"from {before} to {after}")
    return ", ".join(part for part in parts if part)


def _number(payload: Mapping[str, Any], form: str, name: str = "confidence") -> str:
    value = payload.get(name)
    return form.format(value) if isinstance(value, int | float) else ""


def _counted(number: object, words: str) -> str:
    return f"{number}{words}" if number else ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a trail: an event with its sentence, or several of one request with their number."""

    at: datetime
    sentence: Sentence
    event: Mapping[str, Any]
    number: int = 1

    @property
    def undo(self) -> str:
        """The id of the event, if it may be undone; empty for a line of several events."""
        may_undo = self.number == 1 and may_have_inverse(self.event["event_type"], self.event["payload"])
        return str(self.event["id"]) if may_undo and "id" in self.event else ""


def summarize(events: Iterable[Mapping[str, Any]], max_lines: int) -> Sequence[Line]:
    """Return the first lines of a trail; many events of one type in one request share a line."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for event in events:
        groups.setdefault((event["request_id"] or str(event["occurred_at"]), event["event_type"]), []).append(event)
    lines: list[Line] = []
    for (_, event_type), group in groups.items():
        # An episode has no name: two lines about two of them would read the same.
        is_single = len(group) <= (1 if event_type.startswith("episode_") else _MAX_SINGLE)
        single = group if is_single else group[:1]
        number = 1 if is_single else len(group)
        lines += [Line(each["occurred_at"], describe(each), each, number) for each in single]
    return sorted(lines, key=lambda line: line.at, reverse=True)[:max_lines]
