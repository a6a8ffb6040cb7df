"""Review: the memories that wait for a person's judgement, in six piles. Reading them changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import Connection
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import looking, proposals, twins
from butlers.modules.memory.operations.twins import Twins
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories, review
from butlers.modules.memory.store import proposals as proposal_queries

FADING_DAYS = 14
MAX_ITEMS = 100
MAX_CHARACTERS = 10_000
"""Characters of the content to judge; a longer one is corrected on its own page."""

Record = Mapping[str, Any]


class Pile(StrEnum):
    """The piles of the review."""

    FADING = "fading"
    DISTILLED = "distilled"
    PROPOSALS = "proposals"
    HARMFUL = "harmful"
    TWINS = "twins"
    DEAD_LETTERS = "dead-letters"


_NO_MEMORIES = (Pile.TWINS, Pile.PROPOSALS)
"""Piles whose items are no single memories."""


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """A memory to judge, and for twins the other one."""

    record_type: str
    record: Record
    other: Record | None = None
    similarity: float | None = None

    @property
    def id(self) -> UUID:
        """The id of the memory."""
        found: UUID = self.record["id"]
        return found

    @property
    def is_whole(self) -> bool:
        """Whether the content is not cut, so that a person may correct it."""
        return len(self.record["content"]) < MAX_CHARACTERS


@dataclass(frozen=True, slots=True)
class OpenPile:
    """How many items a pile has, at most a hundred, and the one to judge; None at its end."""

    total: int
    item: ReviewItem | None


async def open_pile(memory: Memory, caller: Caller, pile: Pile, skip: int) -> OpenPile:
    """Return a pile and its first item after those that are left for later."""
    if pile is Pile.TWINS:
        pairs = await twins.find_twins(memory, caller)
        return OpenPile(len(pairs), _twin_item(pairs[skip]) if skip < len(pairs) else None)
    if pile is Pile.PROPOSALS:
        waiting = await proposals.list_waiting(memory, caller)
        return OpenPile(len(waiting), ReviewItem("proposal", waiting[skip]) if skip < len(waiting) else None)
    async with memory.transaction(caller) as tx:
        found = await _list_pile(memory, tx, caller, pile)
        rows = await memories.fetch_many(tx, caller, [each for _, each in found[skip : skip + 1]], MAX_CHARACTERS)
    item = next((ReviewItem(kind.value, rows[each]) for kind, each in found[skip:] if each in rows), None)
    return OpenPile(len(found), item)


async def pile_sizes(memory: Memory, caller: Caller) -> dict[Pile, int]:
    """Return the number of items of each pile, at most a hundred each; twins are only counted where asked for."""
    async with memory.transaction(caller) as tx:
        sizes = {pile: len(await _list_pile(memory, tx, caller, pile)) for pile in Pile if pile not in _NO_MEMORIES}
        return {**sizes, Pile.PROPOSALS: len(await proposal_queries.waiting(tx, caller, MAX_ITEMS))}


async def _list_pile(memory: Memory, tx: Connection, caller: Caller, pile: Pile) -> list[tuple[MemoryType, UUID]]:
    """Return the memories of a pile in the order in which to judge them, at most a hundred."""
    if pile is Pile.FADING:
        return await review.fading(tx, caller, memory.config.confidence.fading_below, FADING_DAYS, MAX_ITEMS)
    if pile is Pile.DISTILLED:
        return await looking.list_unlooked(tx, caller, limit=MAX_ITEMS)
    if pile is Pile.HARMFUL:
        return await review.harmful(tx, caller, MAX_ITEMS)
    return await review.dead_letters(tx, caller, MAX_ITEMS)


async def next_to_fade(memory: Memory, caller: Caller) -> Record | None:
    """Return the fact that fades next, with the time."""
    async with memory.transaction(caller) as tx:
        return await review.next_to_fade(tx, caller, memory.config.confidence.fading_below)


def _twin_item(pair: Twins) -> ReviewItem:
    return ReviewItem(pair.record_type, pair.first, pair.second, pair.similarity)
