"""The connection pool, tenant transactions, and the faults behind database errors."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from uuid import UUID
from weakref import WeakValueDictionary

import asyncpg
from pgvector.asyncpg import register_vector

from butlers.caller import Caller
from butlers.connect_faults import NoWritableHost, ReadOnlyServer
from butlers.connector import Connector, ServerConnection
from butlers.errors import Conflict, Fault, Forbidden, Overloaded, TimedOut, Unavailable
from butlers.pooling import Pooling, detect_pooling
from butlers.watchdog import Watchdog

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    PlainConnection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
else:
    Connection = PlainConnection = Pool = Any

Owner: TypeAlias = Callable[[], contextlib.AbstractAsyncContextManager[PlainConnection]]

POOL_TIMEOUT_SECONDS = 2.0
_CACHED_STATEMENTS = 100
PATIENCE_SECONDS = 5.0
# Connecting takes milliseconds; nobody has answered for so long when calls wait for a connection in vain.
_UNANSWERED_SECONDS = 1.0
READ_TIMEOUT_SECONDS = 5.0
WRITE_TIMEOUT_SECONDS = 30.0
_COMMAND_TIMEOUT_SECONDS = 60.0
_SESSION_SETTINGS = {
    # A generic plan made for one tenant is wrong for another: a small tenant would miss some of its rows.
    "plan_cache_mode": "force_custom_plan",
    "search_path": "public, pg_catalog",
    "statement_timeout": f"{WRITE_TIMEOUT_SECONDS:.0f}s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    # Random reads from memory or an SSD are cheap. With the default cost the planner would avoid the indexes that
    # find the vectors of a small tenant.
    "random_page_cost": "1.1",
    # Read every list of the IVFFlat index built on an empty table, and enough of the HNSW index that replaces it.
    "ivfflat.probes": "20",
    "hnsw.ef_search": "400",
    "hnsw.iterative_scan": "relaxed_order",
    "hnsw.max_scan_tuples": "40000",
}
# Behind a pooler, a connection has no settings of its own. They go with the statement that sets the tenant.
_TRANSACTION_SETTINGS = "".join(
    f", set_config('{name}', '{value}', true)"
    for name, value in _SESSION_SETTINGS.items()
    if name != "statement_timeout"
)
_SET_TENANT = "select set_config('app.tenant_id', $1, true), set_config('statement_timeout', $2, true)"
_SET_NO_TENANT = (
    f"select set_config('statement_timeout', '{WRITE_TIMEOUT_SECONDS:.0f}s', true){_TRANSACTION_SETTINGS}"
)
_ASYNC_COMMIT = ", set_config('synchronous_commit', 'off', true)"
_REQUIRE_LEASE = ", require_lease($3, $4)"
_LEASE_LOST_SQLSTATE = "BT001"
# For an index lookup planning takes as long as execution. Sequential scans are off because a plan that was made while
# a table was small would otherwise use one.
_REUSE_PLANS = (
    ", set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)"
)

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Everything that the driver declares; a lost connection may raise any of them."""


class CommitUnknown(Unavailable):
    """The connection was lost during a commit: the change may be stored or not."""

    hint = "A change may be stored: repeat the call with the same idempotency_key, or look before you repeat it."


class LeaseLost(Conflict):
    """Another process has taken over the work that this one was doing."""

    hint = "It goes on there: `butlers jobs list DIR` shows its status."


class Fence(NamedTuple):
    """A lease that a transaction checks: it fails once another process has taken the lease over."""

    name: str
    token: UUID


current_fence: ContextVar[Fence | None] = ContextVar("current_fence", default=None)


class PoolUsage(NamedTuple):
    """The size of the pool and its idle connections."""

    size: int
    idle: int
    limit: int


class Database:
    """A butler's database, accessed as the application's restricted role."""

    def __init__(
        self, pool: Pool, connector: Connector, watchdog: Watchdog, pooling: Pooling, owner: Owner | None = None
    ) -> None:
        self.pooling = pooling
        self._pool = pool
        self._connector = connector
        self._watchdog = watchdog
        self._owner = owner
        self._health_check: asyncio.Task[None] | None = None
        self._set_tenant = _SET_TENANT + (_TRANSACTION_SETTINGS if pooling.is_pooled else "")
        self._tenant_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def transaction(
        self,
        caller: Caller,
        *,
        seconds: float = READ_TIMEOUT_SECONDS,
        durable: bool = True,
        reuse_plans: bool = False,
        lock: str | None = None,
    ) -> AsyncIterator[Connection]:
        """Open a transaction in the caller's tenant; each of its statements may take `seconds`.

        With `durable=False` the commit does not wait for the disk, and a crash may lose it: for data such as read
        counts. With `reuse_plans` the server caches plans: for frequent statements that use an index. With `lock`
        it begins when no other transaction holds the lock of that name.
        """
        fence = current_fence.get()
        settings = self._set_tenant + ("" if durable else _ASYNC_COMMIT) + (_REUSE_PLANS if reuse_plans else "")
        settings += _REQUIRE_LEASE if fence else ""
        arguments = (caller.tenant, str(max(1, round(seconds * 1000))), *(fence or ()))
        if lock is not None:
            settings += f", pg_advisory_xact_lock(hashtextextended(${len(arguments) + 1}, 3))"
            arguments = (*arguments, lock)
        is_committing = False
        try:
            with translate_errors():
                async with self._connection(caller.tenant) as connection:
                    _server_connection(connection).forget_warnings()
                    async with connection.transaction():
                        await connection.execute(settings, *arguments)
                        yield connection
                        is_committing = durable
                    if durable:
                        _refuse_unreplicated(connection)
        except CommitUnknown:
            raise
        except TimedOut as fault:
            if is_committing:
                raise CommitUnknown("the database did not confirm the commit in time") from fault
            raise
        except Unavailable as fault:
            if is_committing:
                raise CommitUnknown("the connection to the database was lost during the commit") from fault
            raise

    async def fetch_row(self, statement: str, *arguments: object) -> asyncpg.Record | None:
        """Return one row of a function that needs no tenant; row-level security hides all tables."""
        return next(iter(await self.fetch_across_tenants(statement, *arguments)), None)

    async def fetch_across_tenants(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of a function that reads across tenants; row-level security hides all tables."""
        with translate_errors():
            async with self._connection() as connection:
                if not self.pooling.is_pooled:
                    return await connection.fetch(statement, *arguments)
                async with connection.transaction():
                    await connection.execute(_SET_NO_TENANT)
                    return await connection.fetch(statement, *arguments)

    @property
    def has_owner(self) -> bool:
        """Whether the credentials of the tables' owner are known to this process."""
        return self._owner is not None

    def owner_connection(self) -> contextlib.AbstractAsyncContextManager[PlainConnection]:
        """Open a connection of the tables' owner; raise `Forbidden` if its credentials are unknown."""
        if self._owner is None:
            raise Forbidden("only the application's role is known", hint="Set BUTLERS_ADMIN_DATABASE_URL.")
        return self._owner()

    async def ping(self) -> None:
        """Raise `Unavailable` if the database does not answer."""
        await self.fetch_row("select 1")

    async def find_fault(self, seconds: float) -> Fault | None:
        """Return why the database can't be written to, or None; after `seconds`, that it does not answer.

        A check that hangs goes on until the watchdog ends it, and later callers wait for the same one.
        """
        if self._health_check is None or self._health_check.done():
            self._health_check = asyncio.create_task(self._check_writable())
        check = self._health_check
        if not (await asyncio.wait({check}, timeout=seconds))[0]:
            usage = self.usage()
            is_busy = usage.size == usage.limit and not usage.idle
            return Overloaded("every database connection is busy") if is_busy else _no_answer()
        error = check.exception()
        if error is None or isinstance(error, Fault):
            return error
        raise error

    async def _check_writable(self) -> None:
        row = await self.fetch_row("select current_setting('transaction_read_only') = 'on' as is_read_only")
        if row is not None and row["is_read_only"]:
            raise ReadOnlyServer

    def usage(self) -> PoolUsage:
        """Return the state of the pool, for /metrics."""
        return PoolUsage(self._pool.get_size(), self._pool.get_idle_size(), self._pool.get_max_size())

    async def close(self, seconds: float = 5.0) -> None:
        """Wait up to `seconds` for running transactions, then close every connection."""
        await self._watchdog.stop()
        try:
            async with asyncio.timeout(seconds):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    def _slots_of(self, tenant: str) -> asyncio.Semaphore:
        size = self._pool.get_max_size()
        # One tenant gets at most three quarters of the pool, so that a flood of its calls leaves some to the others.
        return self._tenant_slots.setdefault(tenant, asyncio.Semaphore(size - size // 4))

    @contextlib.asynccontextmanager
    async def _connection(self, tenant: str | None = None) -> AsyncIterator[Connection]:
        """Yield a connection of the pool, in one of the tenant's slots; raise `Overloaded` if none gets free."""
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(POOL_TIMEOUT_SECONDS):
                    if tenant is not None:
                        await stack.enter_async_context(self._slots_of(tenant))
                    with _translate_connect_errors():
                        connection = await self._pool.acquire(timeout=POOL_TIMEOUT_SECONDS)
                        stack.enter_context(self._watchdog.watch(_server_connection(connection).host_url))
                        stack.push_async_callback(self._release, connection)
            except TimeoutError:
                if self._connector.unanswered_seconds > _UNANSWERED_SECONDS:
                    raise _no_answer() from None
                raise Overloaded("every database connection is busy") from None
            with translate_cut(connection), self._leave_if_read_only(connection):
                yield connection

    async def _release(self, connection: Connection) -> None:
        """Give a connection back; an error is not the call's, which has its result, and the pool replaces it."""
        with contextlib.suppress(OSError, *DRIVER_ERRORS):
            await self._pool.release(connection)

    @contextlib.contextmanager
    def _leave_if_read_only(self, connection: Connection) -> Iterator[None]:
        """After a write that the server refused as read-only, look for the host that takes it."""
        try:
            yield
        except asyncpg.ReadOnlySQLTransactionError:
            if self._connector.has_several_hosts:
                self._connector.leave_host(_server_connection(connection).host_url)
            raise


async def connect(
    dsn: str,
    pool_size: int = 10,
    owner: Owner | None = None,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    pooling: Pooling | None = None,
) -> Database:
    """Open the pool of a database; a host that does not answer for `patience_seconds` loses its connections.

    Without `pooling` it finds out whether a pooler is in between.
    """
    connector = Connector(dsn, patience_seconds)
    with translate_errors(), _translate_connect_errors():
        pooling = pooling or await detect_pooling(connector)
        pool = await asyncpg.create_pool(
            dsn,
            connect=connector.connect,
            connection_class=ServerConnection,
            min_size=1,
            max_size=pool_size,
            command_timeout=_COMMAND_TIMEOUT_SECONDS,
            server_settings={**({} if pooling.is_pooled else _SESSION_SETTINGS), "application_name": "butlers"},
            statement_cache_size=_CACHED_STATEMENTS if pooling.keeps_statements else 0,
            init=_register_codecs,
            reset=_skip_reset,
        )
    return Database(pool, connector, Watchdog(connector, patience_seconds), pooling, owner)


def _server_connection(connection: Connection) -> ServerConnection:
    """Return the connection with the attributes that the pool's proxy passes on."""
    return cast("ServerConnection", connection)


def _refuse_unreplicated(connection: Connection) -> None:
    """Raise `CommitUnknown` if the server gave up waiting for its synchronous standby: a failover may lose this."""
    if _server_connection(connection).is_unreplicated:
        raise CommitUnknown("the change is stored on the primary, and no synchronous standby has confirmed it")


def _no_answer() -> Unavailable:
    return Unavailable("the database does not answer")


async def _register_codecs(connection: PlainConnection) -> None:
    """Convert JSON and vectors to Python values in the driver, so that no statement has to."""
    # In a transaction: a pooler may otherwise send the two halves of a statement to two servers.
    async with connection.transaction():
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        # Without the memory module the type vector may not exist.
        with contextlib.suppress(ValueError):
            await register_vector(connection)


async def _skip_reset(_: PlainConnection) -> None:
    """Skip asyncpg's reset, one round trip: settings and locks end with their transaction."""


_LOCKED = Overloaded("another call holds a lock that this one needs")
_LOGIN_REFUSED = Unavailable(
    "the database refuses the application's role or its password", hint="Correct them and start the butler again."
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
    "3D000": Unavailable(
        "the butler's database does not exist", hint="Start the butler again: it creates its database."
    ),
}
_CONNECTION_LOST_PREFIXES = ("08", "57P")
_DISK_FULL_HINT = "Check free disk space."


@contextlib.contextmanager
def _translate_connect_errors() -> Iterator[None]:
    """Turn an OSError into `Unavailable`; used only while connecting, since a later one may concern any file."""
    try:
        yield
    except TimeoutError:
        raise
    except asyncpg.TargetServerAttributeNotMatched as error:
        raise NoWritableHost from error
    except OSError as error:
        raise Unavailable("the database can't be reached") from error


@contextlib.contextmanager
def translate_cut(connection: Connection | PlainConnection) -> Iterator[None]:
    """Turn any error into `Unavailable` if the connection is closed by then, whatever the driver raised."""
    try:
        yield
    except Exception as error:
        if as_fault(error) is None and _is_closed(connection):
            raise Unavailable("the connection to the database was lost") from error
        raise


def _is_closed(connection: Connection | PlainConnection) -> bool:
    """Return whether the connection is closed, or back in the pool because it was."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the database or its connection into faults; others pass unchanged."""
    try:
        yield
    except (*DRIVER_ERRORS, ConnectionError, TimeoutError) as error:
        fault = as_fault(error)
        if fault is None:
            raise
        raise fault from error


def as_fault(error: BaseException) -> Fault | None:
    """Return the fault for an error or for one of its causes: a killed backend shows only there."""
    fallback: Fault | None = None
    current: BaseException | None = error
    while current is not None:
        if fault := current if isinstance(current, Fault) else _fault_from_sqlstate(current):
            return fault
        # The driver's error comes second: the server's last message may be its cause.
        fallback = fallback or _fault_from_driver_error(current)
        current = current.__cause__ or current.__context__
    return fallback


def _fault_from_sqlstate(error: BaseException) -> Fault | None:
    state = getattr(error, "sqlstate", None)
    if not isinstance(state, str):
        return None
    if state.startswith(_CONNECTION_LOST_PREFIXES):
        return Unavailable("the database ended the connection")
    if state == _LEASE_LOST_SQLSTATE:
        return LeaseLost("another process has taken the work over")
    if state == asyncpg.ReadOnlySQLTransactionError.sqlstate:
        return ReadOnlyServer()
    # A quota or a file size limit has another SQLSTATE than a full disk; only the hint is the same.
    is_full = getattr(error, "hint", None) == _DISK_FULL_HINT
    template = _FAULT_BY_SQLSTATE.get("53100" if is_full else state)
    return template and type(template)(template.message, hint=template.hint)


def _fault_from_driver_error(error: BaseException) -> Fault | None:
    if isinstance(error, TimeoutError):
        return TimedOut("the database took too long")
    # A broken pipe comes from the reader of our output; a lost database connection is reset instead.
    lost = (asyncpg.InterfaceError, asyncpg.InternalClientError, ConnectionError)
    if isinstance(error, lost) and not isinstance(error, BrokenPipeError):
        return Unavailable("the connection to the database was lost")
    return None
