"""Certificates made by the test, and a front that speaks TLS for a server that can't."""

import asyncio
import contextlib
import shutil
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from servers.external_servers import (
    ExternalServer,
    Installation,
    external_server,
    free_port,
    give_to_server,
    new_folder,
)

_SSL_REQUEST = struct.pack("!ii", 8, 80877103)
_NOW = datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate authority's file, and the certificate and key of a server."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, *hosts: str) -> Certificates:
    """Write a new authority, and a server's certificate for these names or addresses."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("butlers test authority", authority_key, None, authority_key, ())
    leaf = _certificate("butlers test server", key, authority, authority_key, hosts)
    files = Certificates(*(folder / name for name in ("authority.pem", "server.pem", "server.key")))
    files.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.key.chmod(0o600)
    for path in (files.certificate, files.key):
        give_to_server(path)
    return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - timedelta(days=1))
        .not_valid_after(_NOW + timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = [_host_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class EncryptedServer(NamedTuple):
    """A server that takes TLS only over TCP, and its certificates."""

    server: ExternalServer
    files: Certificates


@contextlib.contextmanager
def encrypted_server(installation: Installation) -> Iterator[EncryptedServer]:
    """Start a server that speaks TLS itself."""
    folder = new_folder()
    files = make_certificates(folder, "127.0.0.1")
    settings = {"ssl": "on", "ssl_cert_file": str(files.certificate), "ssl_key_file": str(files.key)}
    hba = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
    try:
        with external_server(installation, settings=settings, hba=hba) as server:
            yield EncryptedServer(server, files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def tls_front(server: ExternalServer, certificates: Certificates) -> Iterator[int]:
    """Yield a port on which the server is reached with TLS only, as through the proxy of a cloud."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    port, loop, ready = free_port(), asyncio.new_event_loop(), threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
                await _relay(server, context, reader, writer)
            writer.close()

        async with await asyncio.start_server(connected, "127.0.0.1", port):
            ready.set()
            await stop.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def _relay(
    server: ExternalServer, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Upgrade a connection to TLS and pass it on; close one that does not ask for TLS."""
    if await reader.readexactly(len(_SSL_REQUEST)) != _SSL_REQUEST:
        return
    writer.write(b"S")
    await writer.drain()
    await writer.start_tls(context)
    behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        await asyncio.gather(_copy(reader, behind_writer), _copy(behind_reader, writer))
    finally:
        behind_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()
    writer.close()
