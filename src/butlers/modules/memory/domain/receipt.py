"""Receipts: the memories that a session was told or found, and those left out; ids and numbers, no words."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from butlers.modules.memory.domain.model import MemoryType

MAX_LEFT_OUT = 60
"""Lines of memories that were left out; the receipt counts the others."""


class ReceiptSource(StrEnum):
    """The call that told a session something."""

    CONTEXT = "context"
    RECALL = "recall"
    SEARCH = "search"
    GET = "get"


class ToldOutcome(StrEnum):
    """Whether a memory was told, or why it was left out."""

    TOLD = "told"
    NO_ROOM = "no_room"
    TOO_LONG = "too_long"
    BEYOND_BEST = "beyond_best"
    """Found, but not among the best that a block or a list has room for."""


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """A memory with its rank among those found, its score, and the tokens of its line."""

    memory_type: MemoryType
    memory_id: UUID
    rank: int
    outcome: ToldOutcome = ToldOutcome.TOLD
    score: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one call told a session."""

    source: ReceiptSource
    lines: Sequence[ReceiptLine]
    tokens: int | None = None
    token_budget: int | None = None

    @property
    def told(self) -> int:
        """The number of memories that were told."""
        return sum(line.outcome is ToldOutcome.TOLD for line in self.lines)

    @property
    def left_out(self) -> int:
        """The number of memories that were found and left out."""
        return len(self.lines) - self.told

    @property
    def stored_lines(self) -> list[ReceiptLine]:
        """All that were told and the best of those left out."""
        told = [line for line in self.lines if line.outcome is ToldOutcome.TOLD]
        left_out = [line for line in self.lines if line.outcome is not ToldOutcome.TOLD]
        return told + sorted(left_out, key=lambda line: line.rank)[:MAX_LEFT_OUT]
