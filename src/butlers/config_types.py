"""What a value of the configuration may be; whatever else is given is refused with what is allowed."""

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from butlers import cron
from butlers.caller import validate_tenant
from butlers.errors import InvalidInput
from butlers.toml_diagnostics import display_value


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    if "\0" in text:
        raise ValueError("holds a character that no database keeps: U+0000")
    return text


def _cron(expression: str) -> str:
    try:
        return cron.validate_cron(expression)
    except ValueError as error:
        raise ValueError(f"{display_value(expression)} {error}") from None


def _butler_name(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name):
        raise ValueError(
            f"{display_value(name)} can't name a butler: 1 to 40 of a-z, 0-9, _ and - are allowed, a letter first"
        )
    return name


def _tenant_name(name: str) -> str:
    try:
        return validate_tenant(name)
    except InvalidInput as error:
        raise ValueError(f"{display_value(name)} can't name a tenant: {error.message}") from None


def database_url(url: str) -> str:
    """The address of a PostgreSQL database."""
    # The address may hold a password, so a refusal doesn't repeat it.
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("is not the address of a PostgreSQL database: it begins with postgresql://")
    return url


def _web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or re.search(r"\s", url):
        raise ValueError(f"{display_value(url)} is not a web address: https://… and http://… are allowed")
    return url


def _public_key(text: str) -> str:
    if "-----BEGIN " not in text or "PRIVATE KEY-----" in text:
        raise ValueError("is not a public key: PEM text that begins with -----BEGIN PUBLIC KEY----- is allowed")
    return text


def _variable_name(name: str) -> str:
    # Whoever takes this for the key itself must not find the key in a log.
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError("is not the name of an environment variable: letters, digits and _ are allowed")
    return name


Text = Annotated[str, AfterValidator(_not_blank)]
Cron = Annotated[str, AfterValidator(_cron)]
ButlerName = Annotated[str, AfterValidator(_butler_name)]
TenantName = Annotated[str, AfterValidator(_tenant_name)]
DatabaseUrl = Annotated[str, AfterValidator(database_url)]
WebAddress = Annotated[str, AfterValidator(_web_address)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
VariableName = Annotated[str, AfterValidator(_variable_name)]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def http_address(host: str, port: int) -> str:
    """Where a butler that listens there is reached."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
