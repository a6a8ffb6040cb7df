"""What every memory operation works with."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

from butlers.caller import Caller
from butlers.contract import Spawner
from butlers.db import READ_TIMEOUT_SECONDS, Connection, Database
from butlers.errors import Forbidden
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.domain.model import EVERY_SCOPE, GLOBAL
from butlers.modules.memory.embedding import Embedder
from butlers.modules.memory.store import embedding_versions
from butlers.modules.memory.store.embedding_versions import EmbeddedText

log = logging.getLogger("butlers.memory")
T = TypeVar("T")
_SURVEY_SECONDS = 60.0


class TtlCache(Generic[T]):
    """Answers kept for a while: what changes slowly need not be asked every time."""

    def __init__(self, seconds: float, most: int = 1024) -> None:
        self._seconds = seconds
        self._most = most
        self._answers: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        """The kept answer, or a new one."""
        kept = self._answers.get(key)
        if kept and time.monotonic() - kept[0] < self._seconds:
            return kept[1]
        answer = await ask()
        self._answers[key] = (time.monotonic(), answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True)
class Memory:
    """One butler's memory."""

    database: Database
    embedder: Embedder
    config: MemoryModuleConfig
    butler: str
    spawner: Spawner | None
    sizes: TtlCache[int] = field(default_factory=lambda: TtlCache(_SURVEY_SECONDS))
    graphs: TtlCache[int | None] = field(default_factory=lambda: TtlCache(_SURVEY_SECONDS))
    words: TtlCache[dict[str, float]] = field(default_factory=lambda: TtlCache(60 * _SURVEY_SECONDS))
    background: set["asyncio.Task[Any]"] = field(default_factory=set)
    """Work that goes on after the call that began it was answered."""
    _known_to: set[tuple[str, UUID]] = field(default_factory=set)

    @asynccontextmanager
    async def transaction(
        self, caller: Caller, *, seconds: float = READ_TIMEOUT_SECONDS
    ) -> AsyncIterator[Connection]:
        """One transaction inside the caller's tenant."""
        async with self.database.transaction(caller, seconds=seconds) as tx:
            yield tx

    @asynccontextmanager
    async def reading(self, caller: Caller) -> AsyncIterator[Connection]:
        """One transaction that at most notes what was read, which is not worth waiting for the disk."""
        async with self.database.transaction(caller, durable=False, reuse_plans=True) as tx:
            yield tx

    @asynccontextmanager
    async def writing(
        self, caller: Caller, *, seconds: float = READ_TIMEOUT_SECONDS, reuse_plans: bool = False
    ) -> AsyncIterator[Connection]:
        """One transaction in which rows may name the embedder's version."""
        async with self.database.transaction(caller, seconds=seconds, reuse_plans=reuse_plans) as tx:
            made_by = self.embedder.version
            if (caller.tenant, made_by.id) not in self._known_to:
                await embedding_versions.register_version(
                    tx,
                    caller,
                    made_by.id,
                    model=made_by.model,
                    version=made_by.version,
                    dimensions=made_by.dimensions,
                )
            yield tx
        # Only now: before the commit the row may still be taken back.
        self._known_to.add((caller.tenant, made_by.id))

    def warn(self, what: str) -> None:
        """Tell whoever runs the butler."""
        log.warning(what, extra={"butler": self.butler})

    async def embedded(self, text: str) -> EmbeddedText:
        """A text's vector and what made it."""
        return EmbeddedText(await self.embedder.embed(text), self.embedder.version.id)

    def scopes(self, scope: str | None) -> Sequence[str] | None:
        """Where a search looks: everywhere for '*', else in what is global and in one scope, by default ours."""
        if scope == EVERY_SCOPE:
            return None
        return [GLOBAL, scope or self.butler]

    def butlers(self, scope: str | None) -> Sequence[str] | None:
        """Whose episodes a search looks at: everybody's for '*', else one butler's, by default ours."""
        if scope == EVERY_SCOPE:
            return None
        return [scope or self.butler]

    def speaks_for(self, caller: Caller, butler: str) -> str:
        """The butler a caller may name: the one it reached, or any for an admin."""
        if butler != self.butler and not caller.is_admin:
            raise Forbidden(
                f"this is the butler {self.butler}",
                hint=f'Send butler = "{self.butler}"; another needs the admin role.',
            )
        return butler
