"""A session as turns: what was asked, which tools were called, what was answered."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["prompt", "call", "result", "answer", "context", "rewind", "restart"]
HEADING = "# Memory Context"
"""The first line of every block of memories."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One thing that an entry of a transcript says.

    A call and its result have the same `id`; a rewind drops the prompt with that `id` and everything after it.
    """

    kind: Kind
    text: str = ""
    id: str = ""


@dataclass(slots=True)
class Turn:
    """One prompt and what followed it."""

    prompt: str
    id: str = ""
    tools: Counter[str] = field(default_factory=Counter)
    answer: str = ""


@dataclass(slots=True)
class Transcript:
    """The turns of a session, and the memories that were put into it."""

    turns: list[Turn] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    context_calls: set[str] = field(default_factory=set)
    """The ids of the session's own calls of memory_context."""

    @property
    def prompts(self) -> list[str]:
        """The prompts of all turns."""
        return [turn.prompt for turn in self.turns if turn.prompt]

    @property
    def tools(self) -> Counter[str]:
        """The tools of all turns, with the number of their calls."""
        return sum((turn.tools for turn in self.turns), Counter())

    @property
    def answer(self) -> str:
        """The last answer."""
        return next((turn.answer for turn in reversed(self.turns) if turn.answer), "")

    def add(self, pieces: Iterable[Piece]) -> None:
        """Add the pieces of one entry."""
        for piece in pieces:
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        match piece.kind:
            case "prompt":
                self.turns.append(Turn(piece.text, piece.id))
            case "call":
                self._turn().tools[piece.text] += 1
                if piece.text.endswith("memory_context"):
                    self.context_calls.add(piece.id)
            case "answer":
                self._turn().answer = piece.text
            case "rewind":
                self._rewind(piece.id)
            case "restart":
                self.turns.clear()
            case "context" | "result":
                self._add_injected(piece)

    def _turn(self) -> Turn:
        """The last turn; what comes before the first prompt is a turn without one."""
        if not self.turns:
            self.turns.append(Turn(""))
        return self.turns[-1]

    def _rewind(self, prompt_id: str) -> None:
        ids = [turn.id for turn in self.turns]
        if prompt_id in ids:
            del self.turns[ids.index(prompt_id) :]

    def _add_injected(self, piece: Piece) -> None:
        """Note a block of memories. The result of any other tool, a file or a page, can't pass for one."""
        is_block = piece.kind == "context" or piece.id in self.context_calls
        if is_block and (start := piece.text.find(HEADING)) >= 0:
            self.injected.append(piece.text[start:])
