"""A tunnel to a database server with TLS, for client programs that were built without it."""

import asyncio
import contextlib
import ssl
import struct
import tempfile
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from butlers.errors import Unavailable
from butlers.provision import open_connection

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_CONNECT_TIMEOUT_SECONDS = 10.0
_CHUNK_BYTES = 1 << 16


class TunnelEnd(NamedTuple):
    """The near end of a tunnel: a URL on a private socket, and the password that the server asks for."""

    url: str
    password: str | None


class _Upstream(NamedTuple):
    """The far end: where the driver has reached the server, and how it has checked it."""

    host: str
    port: int
    context: ssl.SSLContext
    is_direct: bool


@contextlib.asynccontextmanager
async def open_tunnel(dsn: str) -> AsyncIterator[TunnelEnd]:
    """Yield a URL of the same database on a socket that only this user can reach, until the block ends.

    The connection to the server is the one that the driver would make: the same host, TLS and checks.
    """
    async with open_connection(dsn) as connection:
        # The driver has no public way to ask which of the hosts it has chosen, and with which context.
        address, parameters = connection._addr, connection._params  # type: ignore[attr-defined] # noqa: SLF001
    host, port = address
    upstream = _Upstream(host, port, parameters.ssl, parameters.ssl_negotiation == "direct")
    relays: set[asyncio.Task[None]] = set()

    def accept(reader: StreamReader, writer: StreamWriter) -> None:
        relay = asyncio.ensure_future(_relay(upstream, reader, writer))
        relays.add(relay)
        relay.add_done_callback(relays.discard)

    with tempfile.TemporaryDirectory(prefix="butlers-tunnel-") as folder:
        server = await asyncio.start_unix_server(accept, Path(folder) / ".s.PGSQL.5432")
        user, database = (quote(str(each), safe="") for each in (parameters.user, parameters.database))
        try:
            yield TunnelEnd(f"postgresql://{user}@/{database}?host={quote(folder)}", parameters.password)
        finally:
            server.close()
            for relay in relays:
                relay.cancel()
            await asyncio.gather(*relays, return_exceptions=True)


async def _relay(upstream: _Upstream, reader: StreamReader, writer: StreamWriter) -> None:
    """Pass the bytes of one connection in both directions until either side ends."""
    with contextlib.suppress(OSError, Unavailable, asyncio.IncompleteReadError), contextlib.closing(writer):
        async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
            far_reader, far_writer = await _connect(upstream)
        with contextlib.closing(far_writer):
            directions = [
                asyncio.ensure_future(_copy(reader, far_writer)),
                asyncio.ensure_future(_copy(far_reader, writer)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in directions:
                    each.cancel()
                await asyncio.gather(*directions, return_exceptions=True)


async def _connect(upstream: _Upstream) -> tuple[StreamReader, StreamWriter]:
    """Open a connection with TLS, after asking for it as the protocol of PostgreSQL says."""
    if upstream.is_direct:
        return await asyncio.open_connection(upstream.host, upstream.port, ssl=upstream.context)
    reader, writer = await asyncio.open_connection(upstream.host, upstream.port)
    with contextlib.ExitStack() as stack:
        stack.callback(writer.close)
        writer.write(_SSL_REQUEST)
        if await reader.readexactly(1) != b"S":
            raise Unavailable("the database server offers no TLS")
        await writer.start_tls(upstream.context, server_hostname=upstream.host)
        stack.pop_all()
    return reader, writer


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
