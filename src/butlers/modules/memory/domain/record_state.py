"""States of records: the difference that an act makes, and the state before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from butlers.modules.memory.domain.errors import ChangedSince

State = Mapping[str, Any]
"""What acts may change of a record, by field, as JSON values."""
WORD_FIELDS = frozenset({"tags", "harmful_reasons", "canonical_name", "aliases", "metadata"})
"""Fields with words of people; an event may name them, but not hold them."""
FORGOTTEN_STATE: Mapping[str, State] = {"fact": {"validity": "retracted"}, "rule": {"forgotten": True}}
"""The state of a memory whose creation is undone."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The fields in which two states differ, with both values."""

    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)

    @property
    def payload(self) -> dict[str, Any]:
        """The difference as an event holds it: values that were set, values before, and the names of word fields."""
        words = sorted(WORD_FIELDS.intersection(self.before))
        plain = [{name: each[name] for name in each if name not in words} for each in (self.after, self.before)]
        return {**plain[0], "before": plain[1], **({"words": words} if words else {})}

    @property
    def words(self) -> "Difference":
        """The word fields alone."""
        before, after = ({n: v for n, v in each.items() if n in WORD_FIELDS} for each in (self.before, self.after))
        return Difference(before, after)


def difference(before: State, after: State) -> Difference:
    """The fields of the second state that differ from the first."""
    changed = [name for name in after if after[name] != before.get(name)]
    return Difference({name: before.get(name) for name in changed}, {name: after[name] for name in changed})


def difference_of_payload(payload: Mapping[str, Any]) -> Difference:
    """The difference that an event holds, without its words."""
    before = payload["before"]
    return Difference(before, {name: payload.get(name) for name in before})


def revert(state: State, differences: Sequence[Difference]) -> State:
    """The state before these differences, in whatever order they were made; raises `ChangedSince`."""
    current, pending = dict(state), list(differences)
    while pending:
        fitting = next((each for each in pending if _fits(current, each)), None)
        if fitting is None:
            raise ChangedSince(sorted({name for each in pending for name in _misfits(current, each)}))
        pending.remove(fitting)
        current |= fitting.before
    return current


def _fits(state: State, each: Difference) -> bool:
    return not _misfits(state, each)


def _misfits(state: State, each: Difference) -> list[str]:
    return [name for name, value in each.after.items() if state.get(name) != value]
