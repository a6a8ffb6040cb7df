"""Connections to the first of a URL's hosts that takes them, with a time limit for each host."""

import asyncio
import socket
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import asyncpg

from butlers.database_url import split_hosts

if TYPE_CHECKING:
    BaseConnection = asyncpg.Connection[asyncpg.Record]
else:
    BaseConnection = asyncpg.Connection

HOST_TIMEOUT_SECONDS = 5.0
# A host that is slow to answer does not hold up the others: they are tried beside it.
_NEXT_HOST_SECONDS = 0.4
_SYNC_WAIT_FUNCTION = "SyncRepWaitForLSN"
_SERVER_FUNCTION_FIELD = "R"


class ServerConnection(BaseConnection):
    """A connection that knows its host, and whether the server gave up waiting for a synchronous standby."""

    __slots__ = ("host_url", "is_unreplicated")

    host_url: str
    is_unreplicated: bool

    def forget_warnings(self) -> None:
        """Forget the warnings of an earlier transaction, whose caller may not have waited for its end."""
        self.is_unreplicated = False

    def _process_log_message(self, fields: dict[str, str], last_query: object) -> None:
        # The server reports this as a warning only, and the commit as a success.
        if fields.get(_SERVER_FUNCTION_FIELD) == _SYNC_WAIT_FUNCTION:
            self.is_unreplicated = True
        super()._process_log_message(fields, last_query)  # type: ignore[misc]


class Connector:
    """Opens connections to a database that several hosts may serve, and remembers which of them does."""

    def __init__(self, dsn: str, host_seconds: float = HOST_TIMEOUT_SECONDS) -> None:
        self._hosts = split_hosts(dsn)
        self._host_seconds = host_seconds
        self._connections: WeakSet[ServerConnection] = WeakSet()
        self._unanswered_since: float | None = None

    @property
    def has_several_hosts(self) -> bool:
        """Whether the URL names more than one host."""
        return len(self._hosts) > 1

    @property
    def unanswered_seconds(self) -> float:
        """The time since the first attempt to connect that nobody has answered; 0 after a success."""
        return 0.0 if self._unanswered_since is None else time.monotonic() - self._unanswered_since

    async def connect(self, *_: object, **options: Any) -> ServerConnection:
        """Open a connection to the first host that takes it, the last one that did before the others.

        Takes the options of `asyncpg.connect`; its positional argument is ignored, for the pool. Raises the error of
        the host that says most.
        """
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()
        connection = await self._race(options)
        self._unanswered_since = None
        self._move(connection.host_url, to_front=True)
        self._connections.add(connection)
        return connection

    async def connect_to(self, host: str, **options: Any) -> ServerConnection:
        """Open a connection to one of the hosts, given by its URL."""
        async with asyncio.timeout(self._host_seconds):
            connection: ServerConnection = await asyncpg.connect(
                host, **{"timeout": self._host_seconds, **options, "connection_class": ServerConnection}
            )
        connection.host_url, connection.is_unreplicated = host, False
        _notice_dead_peer(connection, self._host_seconds)
        return connection

    def leave_host(self, host: str) -> None:
        """End every connection to a host at once, and try the others first."""
        self._move(host, to_front=False)
        for connection in [each for each in self._connections if each.host_url == host]:
            connection.terminate()

    def _move(self, host: str, *, to_front: bool) -> None:
        others = [each for each in self._hosts if each != host]
        self._hosts = [host, *others] if to_front else [*others, host]

    async def _race(self, options: dict[str, Any]) -> ServerConnection:
        """Try each host; begin with the next as soon as one fails, or does not answer for a moment."""
        untried, running, errors = list(self._hosts), set[asyncio.Task[ServerConnection]](), list[BaseException]()
        winner: ServerConnection | None = None
        try:
            while winner is None and (untried or running):
                if untried:
                    running.add(asyncio.ensure_future(self.connect_to(untried.pop(0), **options)))
                wait_seconds = _NEXT_HOST_SECONDS if untried else None
                done, running = await asyncio.wait(running, timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if error := task.exception():
                        errors.append(error)
                    elif winner is None:
                        winner = task.result()
                    else:
                        task.result().terminate()
        finally:
            await _abandon(running)
        if winner is None:
            raise _most_telling(errors)
        return winner


async def _abandon(attempts: Iterable["asyncio.Task[ServerConnection]"]) -> None:
    """Cancel attempts to connect, and end the connection of one that has just succeeded."""
    for task in attempts:
        task.cancel()
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(result, ServerConnection):
            result.terminate()


def _most_telling(errors: list[BaseException]) -> BaseException:
    """Return the error of a host that was reached, or else the last one."""

    def rank(error: BaseException) -> int:
        if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
            return 0
        return 1 if isinstance(error, asyncpg.PostgresError) else 2

    return min(reversed(errors), key=rank)


def _notice_dead_peer(connection: ServerConnection, seconds: float) -> None:
    """Have the kernel end a connection whose other machine is gone, whether it is idle or has sent something."""
    # The driver has no public way to its socket.
    peer: socket.socket = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined] # noqa: SLF001
    if peer.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {
        "TCP_KEEPIDLE": max(1, round(seconds / 2)),
        "TCP_KEEPINTVL": max(1, round(seconds / 6)),
        "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": round(seconds * 1000),
    }.items():
        # Not every system has each of them.
        if option := getattr(socket, name, None):
            peer.setsockopt(socket.IPPROTO_TCP, option, value)
