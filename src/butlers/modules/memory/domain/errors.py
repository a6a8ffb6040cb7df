"""Faults of the memory module; each hint tells the agent what to do next."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from butlers.errors import AlreadyExists, Conflict, InvalidInput, NotFound


class MemoryNotFound(NotFound):
    """No such memory in the caller's tenant."""

    hint = "Ids come from memory_search or memory_recall."

    def __init__(self, memory_type: str, memory_id: object) -> None:
        super().__init__(f"no {memory_type} {memory_id}")


class EntityNotFound(NotFound, ValueError):
    """No such entity in the caller's tenant."""

    hint = "Ids come from entity_resolve or entity_create."

    def __init__(self, entity_id: object) -> None:
        super().__init__(f"the entity {entity_id} does not exist")


class UnknownEntityType(InvalidInput, ValueError):
    """The name is not an entity type."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"'{name}' is not an entity_type", hint=f"Use one of {', '.join(known)}.")


class EntityNameTaken(AlreadyExists, ValueError):
    """Another live entity of the type has that name (ignoring case)."""

    def __init__(self, canonical_name: str, entity_type: str, holder: object) -> None:
        super().__init__(
            f"the {entity_type} '{canonical_name}' exists: entity_id {holder}",
            hint="Use that one, or create a different entity under a more specific name with this one as an alias.",
        )


class EntityMergedAway(Conflict, ValueError):
    """The entity was merged into another one."""

    def __init__(self, entity_id: object, successor: object) -> None:
        super().__init__(f"the entity {entity_id} was merged away", hint=f"Use entity_id {successor}.")


class EntityMergedWithItself(InvalidInput, ValueError):
    """Source and target of a merge are the same."""

    hint = "Send two different ids: the duplicate as source, the entity that stays as target."

    def __init__(self) -> None:
        super().__init__("an entity can't be merged into itself")


class UnknownPermanence(InvalidInput, ValueError):
    """The name is not a permanence."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"'{name}' is not a permanence", hint=f"Use one of {', '.join(known)}.")


class EpisodesDoNotDecay(InvalidInput, ValueError):
    """A caller tried to confirm an episode."""

    hint = "Confirm a fact or a rule; episodes have no confidence that decays."

    def __init__(self) -> None:
        super().__init__("an episode can't be confirmed")


class EpisodesCannotBeEdited(InvalidInput):
    """A caller tried to edit an episode."""

    hint = "Edit the facts and rules that were learned from it."

    def __init__(self) -> None:
        super().__init__("an episode can't be edited")


class MemoryNotLive(Conflict):
    """The state of the memory does not allow the change."""

    _HINTS: ClassVar = {
        "active": "It needs no restoring.",
        "superseded": "Use the fact that superseded it, or store the corrected fact instead.",
    }

    def __init__(self, memory_type: str, memory_id: object, state: str) -> None:
        hint = self._HINTS.get(state, f"Store a new {memory_type} instead, or restore this one.")
        super().__init__(f"the {memory_type} {memory_id} is {state}", hint=hint)
        self.state = state


class IdempotencyKeyReused(Conflict):
    """The idempotency key was used before with other arguments."""

    hint = "Use a new idempotency_key for a new request."

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency_key {key} was used with other arguments")


class ChangedSince(Conflict):
    """The fields that an act set have other values by now."""

    def __init__(self, fields: Sequence[str]) -> None:
        super().__init__(f"changed since: {', '.join(fields)}")
        self.fields = fields


class CannotUndo(Conflict):
    """The call can't be undone."""

    hint = "Look at the history of the memory, and change it by hand."

    def __init__(self, reason: str) -> None:
        super().__init__(f"this can't be undone: {reason}")
        self.reason = reason
