"""URLs of databases: roles and passwords in them, and libpq's parameters in the terms of the driver."""

import contextlib
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from butlers.errors import ConfigurationFault

# The butler has its own limits and names, the driver sends the host's name anyway, and nobody compresses TLS.
_IGNORED = frozenset({
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
    "tcp_user_timeout", "fallback_application_name", "sslsni", "sslcompression",
})  # fmt: skip
# Values that ask for nothing the driver does not do; any other value is refused with the reason.
_IGNORED_VALUES: Mapping[str, Sequence[str]] = {
    "channel_binding": ("disable", "prefer"),
    "client_encoding": ("utf8", "utf-8", "unicode", "auto"),
    "gssdelegation": ("0",),
    "gssencmode": ("disable", "prefer"),
    "load_balance_hosts": ("disable",),
    "max_protocol_version": ("3.0", "latest"),
    "min_protocol_version": ("3.0",),
    "replication": ("false", "off", "no", "0"),
    "requiressl": ("0",),
    "sslcertmode": ("allow",),
}
_REFUSED: Mapping[str, str] = {
    "channel_binding": "Write disable, prefer or require.",
    "client_encoding": "The butler speaks UTF-8: leave it out.",
    "gssdelegation": "The driver does not delegate credentials: leave it out.",
    "gssencmode": "The driver encrypts with TLS only: write sslmode=require.",
    "hostaddr": "Write the address as the host.",
    "load_balance_hosts": "The hosts are tried in the order of the URL: put the one first that is to be tried first.",
    "max_protocol_version": "The driver speaks version 3.0 of the protocol: leave it out.",
    "min_protocol_version": "The driver speaks version 3.0 of the protocol: leave it out.",
    "oauth_client_id": "The driver can't log in with OAuth: use a password or a client certificate.",
    "oauth_client_secret": "The driver can't log in with OAuth: use a password or a client certificate.",
    "oauth_issuer": "The driver can't log in with OAuth: use a password or a client certificate.",
    "oauth_scope": "The driver can't log in with OAuth: use a password or a client certificate.",
    "replication": "A butler needs an ordinary connection: leave it out.",
    "require_auth": "The driver takes the method that the server asks for: let sslmode=verify-full check the server.",
    "requirepeer": "The driver does not check the server's user: protect the folder of the socket instead.",
    "requiressl": "Write sslmode=require.",
    "scram_client_key": "The driver needs the password itself.",
    "scram_server_key": "The driver needs the password itself.",
    "sslcertmode": "The driver sends the certificate that sslcert names: leave it out.",
    "sslcrldir": "Name one file with sslcrl.",
    "sslkeylogfile": "Set the environment variable SSLKEYLOGFILE.",
}
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
_VERIFYING = ("verify-ca", "verify-full")
_SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def driver_url(url: str) -> str:
    """Return the URL without the parameters of libpq that ask for nothing the driver has to do.

    Raises `ConfigurationFault` for a parameter that the driver can't honour, and for a file that can't be read. A
    parameter that libpq does not have stays: the driver passes it to the server as a setting.
    """
    with refuse_malformed_url():
        pairs = _query(url)
    _refuse_parameters(pairs)
    parameters = _with_certificates(pairs)
    for name in _FILES:
        if path := parameters.get(name):
            _check_readable(name, path)
    kept = [(name, value) for name, value in parameters.items() if name not in _IGNORED | _IGNORED_VALUES.keys()]
    return url if kept == pairs else _with_query(url, kept)


def _refuse_parameters(pairs: Sequence[tuple[str, str]]) -> None:
    for name, value in pairs:
        is_allowed = value.lower() in _IGNORED_VALUES.get(name, ()) or (name, value) == ("channel_binding", "require")
        if name in _REFUSED and not is_allowed:
            raise ConfigurationFault(f"{name} in the database's URL can't be honoured", hint=_REFUSED[name])


def _with_certificates(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters with the file of the system's certificates where the server's has to be checked by them.

    Binding the password to the channel keeps others out of the middle. The driver can't do it; a certificate that is
    checked does the same.
    """
    parameters = dict(pairs)
    mode = parameters.get("sslmode")
    if parameters.get("channel_binding") == "require" and mode not in _VERIFYING:
        parameters["sslmode"] = "verify-full"
        parameters.setdefault("sslrootcert", "system")
    if parameters.get("sslrootcert") == "system":
        if parameters.setdefault("sslmode", "verify-full") != "verify-full":
            raise ConfigurationFault(
                "sslrootcert=system in the database's URL is allowed with sslmode=verify-full only",
                hint="Write sslmode=verify-full, or name the file of the authority.",
            )
        parameters["sslrootcert"] = _system_certificates()
    return parameters


def _system_certificates() -> str:
    """Return the file with the authorities that this machine trusts."""
    paths = ssl.get_default_verify_paths()
    candidates = (paths.cafile, paths.openssl_cafile, *_SYSTEM_CERTIFICATES)
    for path in candidates:
        if path and Path(path).is_file():
            return path
    raise ConfigurationFault(
        "this machine has no file of trusted certificates to check the database server by",
        hint="Install ca-certificates, or name a file with sslrootcert in the URL.",
    )


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigurationFault(
            f"{name} in the database's URL names a file that can't be read: {path}: {error.strerror}",
            hint="Name a file that exists and that the butler may read.",
        ) from None


@contextlib.contextmanager
def refuse_malformed_url() -> Iterator[None]:
    """Turn the error of a malformed URL into a fault that does not repeat it: it contains a password."""
    try:
        yield
    except ValueError:
        raise ConfigurationFault(
            "the URL of the database is malformed",
            hint="Write postgresql://ROLE:PASSWORD@HOST:PORT/DATABASE; in it %2F is /, %40 is @ and %23 is #.",
        ) from None


def without_password(url: str) -> str:
    """Return the URL without its password, for logs and errors."""
    parts = urlsplit(url)
    # A password with an unescaped / ? or # is parsed as path, query or fragment.
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{parts.scheme}://…"
    return _with_credentials(url, quote(user_of(url) or "", safe=""), drop={"user", "password", "sslpassword"})


def with_role(url: str, role: str, password: str | None) -> str:
    """Return the URL with another role, whether the URL has its role before the host or in the query."""
    secret = f":{quote(password, safe='')}" if password else ""
    return _with_credentials(url, quote(role, safe="") + secret, drop={"user", "password"})


def user_of(url: str) -> str | None:
    """Return the role of a URL, whether the URL has it before the host or in the query."""
    parts = urlsplit(url)
    return unquote(parts.username) if parts.username else dict(parse_qsl(parts.query)).get("user")


def password_of(url: str) -> str | None:
    """Return the password of a URL, whether the URL has it before the host or in the query."""
    parts = urlsplit(url)
    return unquote(parts.password) if parts.password else dict(parse_qsl(parts.query)).get("password")


def split_hosts(url: str) -> list[str]:
    """Return a URL for each host of a URL, in its order.

    With several hosts and no `target_session_attrs` they ask for one that takes writes: the others are its standbys.
    """
    parts, query = urlsplit(url), dict(_query(url))
    credentials, at, netloc = parts.netloc.rpartition("@")
    if "," in netloc:
        urls = [urlunsplit(parts._replace(netloc=credentials + at + host)) for host in netloc.split(",")]
    elif "," in query.get("host", ""):
        hosts, ports = query["host"].split(","), query.get("port", "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        pairs = zip(hosts, ports, strict=True)
        urls = [_with_query(url, [*(query | {"host": host, "port": port}).items()]) for host, port in pairs]
    else:
        return [url]
    if "target_session_attrs" in query:
        return urls
    return [_with_query(each, [*_query(each), ("target_session_attrs", "read-write")]) for each in urls]


def with_parameters(url: str, names: frozenset[str]) -> str:
    """Return the URL with these of its parameters only."""
    return _with_query(url, [pair for pair in _query(url) if pair[0] in names])


def _with_credentials(url: str, credentials: str, *, drop: set[str]) -> str:
    host = urlsplit(url).netloc.rpartition("@")[2]
    kept = _with_query(url, [pair for pair in _query(url) if pair[0] not in drop])
    return urlunsplit(urlsplit(kept)._replace(netloc=f"{credentials}@{host}" if credentials else host))


def _query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(url).query)


def _with_query(url: str, pairs: Sequence[tuple[str, str]]) -> str:
    return urlunsplit(urlsplit(url)._replace(query=urlencode(pairs, safe="/", quote_via=quote)))
