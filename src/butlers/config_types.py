"""Types of configuration values; a refusal says what is allowed."""

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from butlers.caller import validate_tenant
from butlers.cron import validate_cron
from butlers.errors import InvalidInput
from butlers.toml_diagnostics import display_value

BUTLER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def _validate_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    if "\0" in text:
        raise ValueError("contains a character that PostgreSQL can't store: U+0000")
    return text


def _validate_cron(expression: str) -> str:
    try:
        return validate_cron(expression)
    except ValueError as error:
        raise ValueError(f"{display_value(expression)} {error}") from None


def _validate_butler_name(name: str) -> str:
    if not BUTLER_NAME.fullmatch(name):
        allowed = "1 to 40 of a-z, 0-9, _ and - are allowed, a letter first"
        raise ValueError(f"{display_value(name)} can't name a butler: {allowed}")
    return name


def _validate_tenant_name(name: str) -> str:
    try:
        return validate_tenant(name)
    except InvalidInput as error:
        raise ValueError(f"{display_value(name)} can't name a tenant: {error.message}") from None


def validate_database_url(url: str) -> str:
    """Return `url` if it is a PostgreSQL URL; raise `ValueError` otherwise."""
    # The URL may contain a password, so the message does not repeat it.
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("is not the URL of a PostgreSQL database: it must start with postgresql://")
    return url


def _validate_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or re.search(r"\s", url):
        raise ValueError(f"{display_value(url)} is not a web address: https://… and http://… are allowed")
    return url


def _validate_public_key(text: str) -> str:
    if "-----BEGIN " not in text or "PRIVATE KEY-----" in text:
        raise ValueError("is not a public key: PEM text that starts with -----BEGIN PUBLIC KEY----- is allowed")
    return text


def _validate_variable_name(name: str) -> str:
    # The value may be the key itself, put here by mistake, so the message does not repeat it.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is not the name of an environment variable: letters, digits and _ are allowed")
    return name


def _validate_base_path(path: str) -> str:
    if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
        raise ValueError(
            f"{display_value(path)} is not a path such as /memory: it starts with / and has none at its end"
        )
    return path


Text = Annotated[str, AfterValidator(_validate_text)]
BasePath = Annotated[str, AfterValidator(_validate_base_path)]
Cron = Annotated[str, AfterValidator(_validate_cron)]
ButlerName = Annotated[str, AfterValidator(_validate_butler_name)]
TenantName = Annotated[str, AfterValidator(_validate_tenant_name)]
DatabaseUrl = Annotated[str, AfterValidator(validate_database_url)]
WebAddress = Annotated[str, AfterValidator(_validate_web_address)]
PublicKey = Annotated[str, AfterValidator(_validate_public_key)]
VariableName = Annotated[str, AfterValidator(_validate_variable_name)]


def is_loopback(host: str) -> bool:
    """Whether `host` is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_address(host: str, port: int) -> str:
    """Return the base URL of a butler that listens on `host` and `port`."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
