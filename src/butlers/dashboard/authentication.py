"""Authentication of pages: no login in mode `local`, else a bearer credential or a browser session."""

import time
from collections import OrderedDict, deque
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv6Address, ip_address, ip_network
from typing import NamedTuple
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response

from butlers.caller import Caller, validate_tenant
from butlers.dashboard.page import Page
from butlers.errors import Forbidden, InvalidInput, NotFound, Overloaded
from butlers.host import api_keys, auth, browser_sessions

_MAX_FAILURES = 5
_FAILURE_WINDOW_SECONDS = 60.0
_MAX_ADDRESSES = 10_000
_MAX_CREDENTIAL_CHARACTERS = 8_192
_IPV6_NETWORK_BITS = 64


class Login(NamedTuple):
    """A caller who proved a credential: the key it was, and when it ends."""

    caller: Caller
    key_id: UUID | None = None
    expires_at: datetime | None = None


def sent_credential(page: Page) -> str:
    """Return the bearer credential or the cookie of a request; empty without one."""
    return _bearer(page) or page.request.cookies.get(cookie_name(page)) or ""


async def authenticate(page: Page) -> Caller | None:
    """Return the caller of a request, or None if they have to log in."""
    caller = await _find_caller(page)
    return replace(caller, via="dashboard", request_id=page.caller.request_id) if caller else None


async def _find_caller(page: Page) -> Caller | None:
    if page.server.config.auth.mode == "local":
        return replace(page.caller, actor="local")
    if (credential := _bearer(page)) and page.server.guard is not None:
        token = await page.server.guard.verify_token(credential)
        return auth.caller_from_token(token, butler=page.caller.butler, request_id="") if token else None
    session = await current_session(page)
    return session.caller if session else None


def _bearer(page: Page) -> str:
    scheme, _, credential = page.request.headers.get("authorization", "").partition(" ")
    return credential if scheme.lower() == "bearer" else ""


def within_tenant(page: Page, caller: Caller) -> Caller:
    """Return the caller in the tenant that the path names, or in their own.

    Raises `NotFound` for another tenant's pages unless the caller is an elevated admin.
    """
    tenant = page.request.scope.get("tenant")
    if tenant is None:
        return caller
    try:
        return caller.within(validate_tenant(tenant))
    except (Forbidden, InvalidInput):
        raise NotFound("there is no such page", hint="Use the links above.") from None


async def current_session(page: Page) -> browser_sessions.BrowserSession | None:
    """Return the browser session of the request's cookie, or None."""
    cookie = page.request.cookies.get(cookie_name(page))
    if not cookie:
        return None
    return await browser_sessions.find_session(page.butler.database, page.caller.butler, cookie)


async def open_session(page: Page, credential: str) -> str | None:
    """Return the token of a new session for a key, token or ticket; None if the credential is not valid.

    Raises `Overloaded` after several wrong credentials of one address within a minute.
    """
    failures = page.request.app.state.login_failures
    address = client_network(page.request)
    failures.check(address)
    database, butler = page.butler.database, page.caller.butler
    credential = credential.strip()[:_MAX_CREDENTIAL_CHARACTERS]
    if credential.startswith(browser_sessions.TICKET_PREFIX):
        token = await browser_sessions.redeem_ticket(database, butler, credential)
    else:
        login = await _verify(page, credential)
        token = await browser_sessions.open_session(database, *login) if login else None
    if token is None:
        failures.add(address)
    return token


async def _verify(page: Page, credential: str) -> Login | None:
    """Return the caller of an API key, or of a token of the identity provider; None if it is not valid."""
    if page.server.config.auth.mode == "keys":
        row = await api_keys.find_active_key(page.butler.database, credential)
        if row is None:
            return None
        caller = Caller(
            tenant=row["tenant_id"],
            butler=page.caller.butler,
            actor=row["actor"],
            roles=frozenset(row["roles"]),
            elevated=row["elevated"],
        )
        return Login(caller, row["id"], row["expires_at"])
    token = await page.server.guard.verify_token(credential) if page.server.guard else None
    if token is None:
        return None
    expires_at = datetime.fromtimestamp(token.expires_at, UTC) if token.expires_at else None
    return Login(auth.caller_from_token(token, butler=page.caller.butler, request_id=""), None, expires_at)


def cookie_name(page: Page) -> str:
    """Return the cookie's name: butlers on other ports of a host share its cookies, so each has its own."""
    prefix = "__Host-" if _is_secure(page.request) else ""
    return f"{prefix}butlers-{page.caller.butler}"


def set_cookie(page: Page, response: Response, token: str) -> None:
    """Set the session's cookie. Scripts can't read it, and forms of other sites don't carry it."""
    response.set_cookie(
        cookie_name(page), token, httponly=True, samesite="lax", path="/", secure=_is_secure(page.request)
    )


def delete_cookie(page: Page, response: Response) -> None:
    """Delete the session's cookie."""
    secure = _is_secure(page.request)
    response.delete_cookie(cookie_name(page), httponly=True, samesite="lax", path="/", secure=secure)


def client_network(request: Request) -> str:
    """Return the address that a request comes from; of IPv6 the network, since one client has all its addresses."""
    host = request.client.host if request.client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address) or address.ipv4_mapped is not None:
        return host
    return str(ip_network((int(address), _IPV6_NETWORK_BITS), strict=False))


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


class LoginFailures:
    """Wrong credentials by address within the last minute."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise `Overloaded` if the address sent too many wrong credentials."""
        recent = self._recent(address)
        if len(recent) >= _MAX_FAILURES:
            raise Overloaded(
                f"{_MAX_FAILURES} wrong credentials within a minute", hint="Wait a minute, then try again."
            )

    def add(self, address: str) -> None:
        """Count a wrong credential."""
        recent = self._recent(address)
        recent.append(time.monotonic())
        self._times[address] = recent
        self._times.move_to_end(address)
        if len(self._times) > _MAX_ADDRESSES:
            self._times.popitem(last=False)

    def _recent(self, address: str) -> "deque[float]":
        oldest = time.monotonic() - _FAILURE_WINDOW_SECONDS
        return deque(moment for moment in self._times.get(address, ()) if moment > oldest)
