"""The pool and the only way into it: a transaction that belongs to a tenant."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import asyncpg
from pgvector.asyncpg import register_vector

from butlers.caller import Caller
from butlers.errors import Fault, Forbidden, Overloaded, TimedOut, Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
else:
    Connection = PlainConnection = Pool = Any

Owner: TypeAlias = Callable[[], contextlib.AbstractAsyncContextManager[PlainConnection]]

POOL_TIMEOUT_SECONDS = 2.0
_CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 5.0
WRITE_TIMEOUT_SECONDS = 30.0
_COMMAND_TIMEOUT_SECONDS = 60.0
_SESSION_SETTINGS = {
    # A generic plan made for one tenant is wrong for the next: a small tenant would get a part of its rows.
    "plan_cache_mode": "force_custom_plan",
    "search_path": "public, pg_catalog",
    "statement_timeout": f"{WRITE_TIMEOUT_SECONDS:.0f}s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    # What is searched lies in memory or on a disk without a head: an index is then worth its while much sooner, and
    # a small tenant's vectors are read from one that holds nothing else.
    "random_page_cost": "1.1",
    # Of a vector index: all lists of the one built on an empty table, and enough of the one that replaces it.
    "ivfflat.probes": "20",
    "hnsw.ef_search": "400",
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.max_scan_tuples": "40000",
}
_SET_TENANT = "select set_config('app.tenant_id', $1, true), set_config('statement_timeout', $2, true)"
_ASYNC_COMMIT = ", set_config('synchronous_commit', 'off', true)"
# Planning takes as long as the work where that is a look at an index; a table is then never read from end to end,
# which a plan made while it was small would still do.
_REUSE_PLANS = ", set_config('plan_cache_mode', 'auto', true), set_config('enable_seqscan', 'off', true)"


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """How much of the pool is in use."""

    size: int
    idle: int
    limit: int


class Database:
    """One butler's database, reached as the application's restricted role."""

    def __init__(self, pool: Pool, dsn: str, owner: Owner | None = None) -> None:
        self._pool = pool
        self._dsn = dsn
        self._owner = owner
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def transaction(
        self,
        caller: Caller,
        *,
        seconds: float = READ_TIMEOUT_SECONDS,
        durable: bool = True,
        reuse_plans: bool = False,
    ) -> AsyncIterator[Connection]:
        """One transaction inside the caller's tenant; each of its statements may take `seconds`.

        Not durable: for what nobody was promised, such as a note that a memory was read. It need not wait for
        the disk, and a crash may lose it. Often: for the same few statements again and again, each of which finds
        its rows by an index; the server may remember how.
        """
        with translate_errors():
            async with (
                self._tenant_slot(caller.tenant) as seconds_left,
                self._connection(seconds_left) as connection,
                connection.transaction(),
            ):
                await connection.execute(
                    _SET_TENANT + ("" if durable else _ASYNC_COMMIT) + (_REUSE_PLANS if reuse_plans else ""),
                    caller.tenant,
                    str(max(1, round(seconds * 1000))),
                )
                yield connection

    async def fetch_row(self, statement: str, *arguments: object) -> asyncpg.Record | None:
        """One row from a function made to be asked before a tenant is known; tables stay out of reach."""
        with translate_errors():
            async with self._connection() as connection:
                return await connection.fetchrow(statement, *arguments)

    async def fetch_across_tenants(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """The rows of a function made to look across tenants; tables stay out of reach."""
        with translate_errors():
            async with self._connection() as connection:
                return await connection.fetch(statement, *arguments)

    @contextlib.asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        """Whether `name` is ours alone, among all processes on this database, until the block ends."""
        with translate_errors():
            # A connection of its own: the lock lasts as long as the work, and would keep a place in the pool.
            with _translate_connect_errors():
                connection = await asyncpg.connect(
                    self._dsn, server_settings=_SESSION_SETTINGS, timeout=_CONNECT_TIMEOUT_SECONDS
                )
            try:
                yield bool(await connection.fetchval("select pg_try_advisory_lock(hashtextextended($1, 0))", name))
            finally:
                await _close(connection)

    def owner_connection(self) -> contextlib.AbstractAsyncContextManager[PlainConnection]:
        """A connection of the tables' owner, for upkeep that only an owner may do."""
        if self._owner is None:
            raise Forbidden("only the application's role is known", hint="Set BUTLERS_ADMIN_DATABASE_URL.")
        return self._owner()

    async def ping(self) -> None:
        """Return when the database answers; raise `Unavailable` when it does not."""
        await self.fetch_row("select 1")

    def usage(self) -> PoolUsage:
        """The pool's state, for /metrics."""
        return PoolUsage(self._pool.get_size(), self._pool.get_idle_size(), self._pool.get_max_size())

    async def close(self, seconds: float = 5.0) -> None:
        """Let running transactions end within the time given, then close every connection."""
        try:
            async with asyncio.timeout(seconds):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @contextlib.asynccontextmanager
    async def _tenant_slot(self, tenant: str) -> AsyncIterator[float]:
        """One of the tenant's places, and the seconds that are left to wait for a connection."""
        whole = self._pool.get_max_size()
        # A quarter of the pool is beyond the reach of any single tenant: a flood leaves the others theirs.
        share = self._shares.setdefault(tenant, asyncio.Semaphore(whole - whole // 4))
        began = time.monotonic()
        try:
            async with asyncio.timeout(POOL_TIMEOUT_SECONDS):
                await share.acquire()
        except TimeoutError:
            raise _pool_exhausted() from None
        try:
            yield max(0.0, began + POOL_TIMEOUT_SECONDS - time.monotonic())
        finally:
            share.release()

    @contextlib.asynccontextmanager
    async def _connection(self, seconds: float = POOL_TIMEOUT_SECONDS) -> AsyncIterator[Connection]:
        try:
            with _translate_connect_errors():
                connection = await self._pool.acquire(timeout=seconds)
        except TimeoutError:
            raise _pool_exhausted() from None
        try:
            yield connection
        finally:
            await self._pool.release(connection)


async def connect(dsn: str, pool_size: int = 10, owner: Owner | None = None) -> Database:
    """A database with its pool open."""
    with translate_errors(), _translate_connect_errors():
        pool = await asyncpg.create_pool(
            dsn,
            min_size=1,
            max_size=pool_size,
            command_timeout=_COMMAND_TIMEOUT_SECONDS,
            server_settings={**_SESSION_SETTINGS, "application_name": "butlers"},
            init=_register_codecs,
            reset=_skip_reset,
        )
    return Database(pool, dsn, owner)


async def _register_codecs(connection: PlainConnection) -> None:
    """Python values for JSON and vectors, so that no statement has to convert them."""
    for kind in ("json", "jsonb"):
        await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    # Without the memory module the extension, and so the type, may not be there.
    with contextlib.suppress(ValueError):
        await register_vector(connection)


async def _skip_reset(_: PlainConnection) -> None:
    """Save a round trip: settings and locks here end with their transaction (asyncpg rolls an open one back)."""


async def _close(connection: PlainConnection) -> None:
    with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await connection.close(timeout=1)


def _pool_exhausted() -> Overloaded:
    return Overloaded("every database connection is busy")


_LOCKED = Overloaded("another call holds what this one needs")
_LOGIN_REFUSED = Unavailable(
    "the database refuses the application's role or its password", hint="Start the butler again with the right ones."
)
_FAULT_BY_SQLSTATE: dict[str, Fault] = {
    "40001": _LOCKED,
    "40P01": _LOCKED,
    "55P03": _LOCKED,
    "53300": Overloaded("the database has no connection left"),
    "53100": Unavailable("the database server's disk is full", hint="Free some space there, then retry."),
    "53200": Overloaded("the database server is out of memory"),
    "57014": TimedOut("the database took too long"),
    "25P03": TimedOut("the transaction was idle for too long"),
    "28000": _LOGIN_REFUSED,
    "28P01": _LOGIN_REFUSED,
    "3D000": Unavailable("the butler's database is not there", hint="Start the butler again: it makes its database."),
}
_CONNECTION_LOST_PREFIXES = ("08", "57P")
_DISK_FULL_HINT = "Check free disk space."


@contextlib.contextmanager
def _translate_connect_errors() -> Iterator[None]:
    """An OSError while a connection is made is about the database; a later one may be about any file."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise Unavailable("the database can't be reached") from error


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turn what the database or its connection did into a fault; anything else passes as it is."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError, TimeoutError) as error:
        fault = as_fault(error)
        if fault is None:
            raise
        raise fault from error


def as_fault(error: BaseException) -> Fault | None:
    """The fault behind an error, looking through the errors it was raised from: a killed backend hides there."""
    guess: Fault | None = None
    at: BaseException | None = error
    while at is not None:
        if fault := at if isinstance(at, Fault) else _fault_from_sqlstate(at):
            return fault
        # The driver's own complaint comes second: what the server said last may stand behind it.
        guess = guess or _fault_from_driver_error(at)
        at = at.__cause__ or at.__context__
    return guess


def _fault_from_sqlstate(error: BaseException) -> Fault | None:
    """What the server said, by its SQLSTATE."""
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        return None
    if state.startswith(_CONNECTION_LOST_PREFIXES):
        return Unavailable("the database ended the connection")
    # A quota or a limit of the server's is a full disk to whoever wants to write; only the hint tells.
    full = getattr(error, "hint", None) == _DISK_FULL_HINT
    template = _FAULT_BY_SQLSTATE.get("53100" if full else state)
    return template and type(template)(template.message, hint=template.advice)


def _fault_from_driver_error(error: BaseException) -> Fault | None:
    """What the driver noticed by itself."""
    if isinstance(error, TimeoutError):
        return TimedOut("the database took too long")
    # A broken pipe is the reader of our own output that left; the database's connection is reset instead.
    if isinstance(error, (asyncpg.InterfaceError, ConnectionError)) and not isinstance(error, BrokenPipeError):
        return Unavailable("the connection to the database was lost")
    return None
