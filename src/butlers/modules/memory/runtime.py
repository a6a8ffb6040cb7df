"""The state that every memory operation uses."""

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from weakref import WeakValueDictionary

from butlers.caller import Caller
from butlers.contract import Spawner
from butlers.db import READ_TIMEOUT_SECONDS, Connection, Database
from butlers.errors import Forbidden
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.domain.model import EVERY_SCOPE, GLOBAL
from butlers.modules.memory.embedding import Embedder
from butlers.modules.memory.store import embedding_versions
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.receipts import NewReceipt
from butlers.modules.memory.store.search import Statistics

log = logging.getLogger("butlers.memory")
T = TypeVar("T")
Transaction = AbstractAsyncContextManager[Connection]
_CACHE_SECONDS = 20.0


class TtlCache(Generic[T]):
    """A bounded cache of values that expire after some seconds."""

    def __init__(self, seconds: float, max_entries: int = 1024) -> None:
        self._seconds = seconds
        self._max_entries = max_entries
        self._entries: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    async def get(self, key: Hashable, load: Callable[[], Awaitable[T]]) -> T:
        """The cached value, or a new one from `load` if it is missing or expired."""
        cached = self.find(key)
        if cached is not None:
            return cached
        value = await load()
        self.put(key, value)
        return value

    def find(self, key: Hashable) -> T | None:
        """The cached value, or None if it is missing or expired."""
        expires, value = self._entries.get(key, (0.0, None))
        return value if time.monotonic() < expires else None

    def put(self, key: Hashable, value: T, seconds: float | None = None) -> None:
        """Cache a value, for the seconds of the cache or for these; the oldest gives way."""
        self._entries[key] = (time.monotonic() + (self._seconds if seconds is None else seconds), value)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)

    def forget(self, key: Hashable) -> None:
        """Remove a value, so that the next `get` loads it again."""
        self._entries.pop(key, None)


class TenantThreads:
    """Slow work in threads, one at a time for each tenant: the threads are shared by all."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, tenant: str, work: Callable[[], T]) -> T:
        """The result of the work, after the tenant's earlier work. A cancelled call waits for its thread to end."""
        lock = self._locks.setdefault(tenant, asyncio.Lock())
        async with lock:
            thread = asyncio.ensure_future(asyncio.to_thread(work))
            try:
                return await asyncio.shield(thread)
            finally:
                await asyncio.wait([thread])


class PendingReceipt(NamedTuple):
    """A receipt with the caller whose session it is of."""

    caller: Caller
    receipt: NewReceipt


@dataclass(slots=True)
class ReceiptQueue:
    """Receipts that are not stored yet, and the task that stores them."""

    pending: deque[PendingReceipt] = field(default_factory=deque)
    writer: "asyncio.Task[None] | None" = None


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one butler."""

    database: Database
    embedder: Embedder
    config: MemoryModuleConfig
    butler: str
    spawner: Spawner | None
    search_statistics: TtlCache[Statistics] = field(default_factory=lambda: TtlCache(_CACHE_SECONDS, 256))
    """The sizes of scopes and the shares of common terms; search plans are made from them."""
    rendering: TenantThreads = field(default_factory=TenantThreads)
    """Where context blocks are rendered."""
    scanning: TenantThreads = field(default_factory=TenantThreads)
    """Where long texts are searched for secrets."""
    background: set["asyncio.Task[Any]"] = field(default_factory=set)
    """Tasks that continue after the call that started them returned."""
    receipts: ReceiptQueue = field(default_factory=ReceiptQueue)
    _registered_versions: set[tuple[str, UUID]] = field(default_factory=set)

    def transaction(self, caller: Caller, *, seconds: float = READ_TIMEOUT_SECONDS) -> Transaction:
        """A transaction in the caller's tenant."""
        return self.database.transaction(caller, seconds=seconds)

    def read_transaction(self, caller: Caller) -> Transaction:
        """A transaction that writes only reference counts, so its commit does not wait for the disk."""
        return self.database.transaction(caller, durable=False, reuse_plans=True)

    @asynccontextmanager
    async def write_transaction(
        self,
        caller: Caller,
        *,
        seconds: float = READ_TIMEOUT_SECONDS,
        reuse_plans: bool = False,
        lock: str | None = None,
    ) -> AsyncIterator[Connection]:
        """A transaction whose rows may refer to the embedder's version."""
        async with self.database.transaction(caller, seconds=seconds, reuse_plans=reuse_plans, lock=lock) as tx:
            version = self.embedder.version
            if (caller.tenant, version.id) not in self._registered_versions:
                await embedding_versions.register_version(tx, caller, version.id, **asdict(version))
            yield tx
        # After the commit: a rollback removes the row.
        self._registered_versions.add((caller.tenant, version.id))

    def warn(self, message: str) -> None:
        """Log a warning with the butler's name."""
        log.warning(message, extra={"butler": self.butler})

    async def embed(self, caller: Caller, text: str) -> EmbeddedText:
        """The vector of a text with the version that made it."""
        return EmbeddedText(await self.embedder.embed(text, tenant=caller.tenant), self.embedder.version.id)

    def scopes(self, scope: str | None) -> Sequence[str] | None:
        """The scopes a search covers: None (all) for '*', else global and one scope, by default this butler's."""
        return None if scope == EVERY_SCOPE else [GLOBAL, scope or self.butler]

    def butlers(self, scope: str | None) -> Sequence[str] | None:
        """The butlers whose episodes a search covers: None (all) for '*', else one, by default this one."""
        return None if scope == EVERY_SCOPE else [scope or self.butler]

    def check_butler(self, caller: Caller, butler: str) -> str:
        """The butler's name; raises Forbidden if it is another butler and the caller is not an admin."""
        if butler != self.butler and not caller.is_admin:
            raise Forbidden(
                f"this is the butler {self.butler}",
                hint=f'Send butler = "{self.butler}"; another butler needs the admin role.',
            )
        return butler
