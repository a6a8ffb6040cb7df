"""Queue of texts that wait for the embedding model; its lanes take turns."""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from butlers.modules.memory.onnx_model import Vector

MAX_BATCH_SIZE = 32
MAX_BATCH_CHARACTERS = 1_200
"""Characters of a batch, each text padded to the longest. A larger batch does not fit the processor's cache."""
_MAX_READ_CHARACTERS = 1_500
"""About as much as the model reads of a text: its first 256 tokens."""


@dataclass(slots=True)
class PendingText:
    """A text that waits for its vector, and the number of calls that wait for it."""

    text: str
    future: "asyncio.Future[Vector]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiters: int = 0

    async def vector(self) -> Vector:
        """Return the vector. The text leaves the queue when every call that waits for it is cancelled."""
        self.waiters += 1
        try:
            # Shielded: other calls may wait for the same text when this one is cancelled.
            return await asyncio.shield(self.future)
        finally:
            self.waiters -= 1
            if not self.waiters:
                self.future.cancel()

    @property
    def padded_characters(self) -> int:
        """The characters that the model reads."""
        return min(len(self.text), _MAX_READ_CHARACTERS)


class EmbeddingQueue:
    """Texts in lanes. A batch takes one text of each lane in turn, so a long lane does not delay the others."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[Hashable, OrderedDict[str, PendingText]] = OrderedDict()

    def __len__(self) -> int:
        """The number of texts that wait."""
        return sum(map(len, self._lanes.values()))

    def add(self, lane: Hashable, text: str) -> PendingText:
        """Return the pending text of a lane, added at its end unless it waits there already."""
        pending_texts = self._lanes.setdefault(lane, OrderedDict())
        pending = pending_texts.get(text)
        if pending is None or pending.future.cancelled():
            pending = pending_texts[text] = PendingText(text)
        return pending

    def next_batch(self) -> list[PendingText]:
        """Remove and return the texts of the next run of the model; none if nothing waits."""
        batch: list[PendingText] = []
        longest = 0
        while len(batch) < MAX_BATCH_SIZE and (pending := self._first()):
            longest = max(longest, pending.padded_characters)
            if batch and longest * (len(batch) + 1) > MAX_BATCH_CHARACTERS:
                break
            batch.append(pending)
            self._take_first()
        return batch

    def _first(self) -> PendingText | None:
        """Return the text whose turn it is, after dropping texts that nobody waits for."""
        while self._lanes:
            lane = next(iter(self._lanes.values()))
            pending = next(iter(lane.values()))
            if not pending.future.cancelled():
                return pending
            self._take_first()
        return None

    def _take_first(self) -> None:
        """Remove the first text of the first lane; the lane goes to the end of the line."""
        name, lane = self._lanes.popitem(last=False)
        lane.popitem(last=False)
        if lane:
            self._lanes[name] = lane
