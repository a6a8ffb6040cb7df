"""Faults of connections that can't be opened: one sentence for each cause."""

import socket
import ssl
from functools import singledispatch
from typing import ClassVar

import asyncpg

from butlers.database_url import user_of, without_password
from butlers.errors import ConfigurationFault, Fault, Unavailable

_CHECK_HINT = "Is the server running, and are host, database, role and password right? Then start again."
_HOST_MISMATCH_CODES = (62, 64)
_EXPIRED_CODE = 10


class NoWritableHost(Unavailable):
    """Hosts of the URL answer, and none of them takes writes."""

    health: ClassVar[str] = "no writable host"
    hint = "Retry in a few seconds: a standby may be about to be promoted. Else check the hosts of the URL."

    def __init__(self) -> None:
        super().__init__("no host of the database takes writes")


class ReadOnlyServer(Unavailable):
    """The database server takes no writes: it is a standby, or its transactions are read-only by default."""

    health: ClassVar[str] = "read-only"
    hint = "Retry in a few seconds. If it stays so, let the database's URL name the primary, or both hosts."

    def __init__(self) -> None:
        super().__init__("the database server is read-only")


@singledispatch
def connect_fault(error: BaseException, url: str) -> Fault:
    """Return the fault for an error of connecting to a URL; it names the address without the password."""
    return _unreachable(url, type(error).__name__)


def _unreachable(url: str, reason: str, hint: str = _CHECK_HINT) -> Unavailable:
    return Unavailable(f"PostgreSQL can't be reached at {without_password(url)}: {reason}", hint=hint)


@connect_fault.register
def _(error: ssl.SSLCertVerificationError, _: str) -> Fault:
    reason = error.verify_message.rstrip(".")
    if error.verify_code in _HOST_MISMATCH_CODES:
        return ConfigurationFault(
            f"the certificate of the database server is for another host: {reason}",
            hint="Write a host that the certificate names, or sslmode=verify-ca to check its authority alone.",
        )
    if error.verify_code == _EXPIRED_CODE:
        return ConfigurationFault(
            "the certificate of the database server has expired", hint="Have it renewed, then start again."
        )
    return ConfigurationFault(
        f"the certificate of the database server is not trusted: {reason}",
        hint="Name the file of its authority with sslrootcert in the URL; sslrootcert=system is the machine's own.",
    )


@connect_fault.register
def _(error: ssl.SSLError, url: str) -> Fault:
    reason = (error.reason or type(error).__name__).replace("_", " ").lower()
    hint = "Compare the certificates and TLS versions of the URL with those of the server."
    return _unreachable(url, f"TLS failed: {reason}", hint)


@connect_fault.register
def _(_: socket.gaierror, url: str) -> Fault:
    return _unreachable(url, "there is no host of that name", "Correct the host in the URL, then start again.")


@connect_fault.register
def _(_: TimeoutError, url: str) -> Fault:
    return _unreachable(url, "it does not answer", "Check the host, the network and the server; then start again.")


@connect_fault.register
def _(error: ConnectionError, url: str) -> Fault:
    if "rejected SSL upgrade" not in str(error):
        return _unreachable(url, type(error).__name__)
    hint = "Let the server offer TLS, or write sslmode=prefer for a network that you trust."
    return _unreachable(url, "the server offers no TLS, and sslmode asks for it", hint)


@connect_fault.register
def _(_: asyncpg.ConnectionDoesNotExistError, url: str) -> Fault:
    hint = "If it takes TLS only, write sslmode=require, or better verify-full, in the URL; else see its log."
    return _unreachable(url, "the server closed the connection", hint)


@connect_fault.register
def _(_: asyncpg.TargetServerAttributeNotMatched, __: str) -> Fault:
    return NoWritableHost()


@connect_fault.register
def _(error: asyncpg.ClientConfigurationError, _: str) -> Fault:
    # The driver names files and lists values in these messages; it repeats no URL.
    return ConfigurationFault(
        f"the database's URL can't be used: {error.args[0]}",
        hint="Correct the URL; in it, sslrootcert=system takes the machine's own certificates.",
    )


@connect_fault.register
def _(_: asyncpg.InvalidPasswordError, url: str) -> Fault:
    role = user_of(url)
    return _unreachable(url, f"the server refuses the password of {role}" if role else "it refuses the password")


@connect_fault.register
def _(error: asyncpg.InvalidAuthorizationSpecificationError, url: str) -> Fault:
    message = str(error)
    if "no encryption" in message:
        return ConfigurationFault(
            f"the database server refuses a connection without TLS: {message}",
            hint="Write sslmode=require, or better verify-full, in the URL.",
        )
    return _unreachable(url, message)


@connect_fault.register
def _(error: asyncpg.InvalidCatalogNameError, url: str) -> Fault:
    return _unreachable(url, str(error), "Create the database, or correct its name in the URL; then start again.")


@connect_fault.register
def _(error: asyncpg.ProtocolViolationError, url: str) -> Fault:
    if "startup parameter" not in str(error):
        return _unreachable(url, str(error))
    return ConfigurationFault(
        f"the pooler does not take a parameter of the URL: {error}",
        hint="Remove it from the URL, or set it for the role with ALTER ROLE.",
    )


@connect_fault.register(asyncpg.UndefinedObjectError)
@connect_fault.register(asyncpg.InvalidParameterValueError)
def _(error: asyncpg.PostgresError, _: str) -> Fault:
    return ConfigurationFault(
        f"the database server does not take a parameter of the URL: {error}",
        hint="Remove it from the URL: it is neither a parameter of libpq nor a setting of this server.",
    )
