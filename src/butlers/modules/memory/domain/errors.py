"""What can go wrong with memories; each tells the agent what to do next."""

from collections.abc import Iterable

from butlers.errors import Conflict, InvalidInput, NotFound


class MemoryNotFound(NotFound):
    """No such memory in the caller's tenant."""

    hint = "Ids come from memory_search or memory_recall."

    def __init__(self, memory_type: str, memory_id: object) -> None:
        super().__init__(f"no {memory_type} {memory_id}")


class EntityNotFound(NotFound):
    """No such entity in the caller's tenant."""

    hint = "Ids come from entity_resolve or entity_create."

    def __init__(self, entity_id: object) -> None:
        super().__init__(f"the entity {entity_id} does not exist")


class UnknownPermanence(InvalidInput, ValueError):
    """A permanence that is none."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"'{name}' is not a permanence", hint=f"Use one of {', '.join(known)}.")


class EpisodesDoNotDecay(InvalidInput, ValueError):
    """An episode was to be confirmed."""

    hint = "Confirm a fact or a rule; episodes have no confidence that decays."

    def __init__(self) -> None:
        super().__init__("an episode can't be confirmed")


class NotBelievedAnyMore(Conflict):
    """The memory has left the state in which it could be confirmed or marked."""

    def __init__(self, memory_type: str, memory_id: object, state: str) -> None:
        hint = "Store the corrected fact instead." if memory_type == "fact" else "Store a new rule instead."
        super().__init__(f"the {memory_type} {memory_id} is {state}", hint=hint)


class KeyUsedOtherwise(Conflict):
    """An idempotency key came back with other arguments."""

    hint = "Use a new idempotency_key for a new request."

    def __init__(self, key: str) -> None:
        super().__init__(f"the idempotency_key {key} was used with other arguments")
