"""Authentication: verifiers for API keys and JWTs, and the caller of a request."""

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeGuard
from uuid import UUID

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token, get_http_request

from butlers.caller import AGENT_HEADER, SESSION_HEADER, Caller, validate_tenant
from butlers.config import AuthConfig
from butlers.db import Database
from butlers.errors import Forbidden, InvalidInput
from butlers.host import api_keys
from butlers.host.local_client import acting_caller

_CLAIM = "butlers"
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,63}")
_LEEWAY_SECONDS = 60
_MAX_ACTOR_CHARACTERS = 200
_YEAR_10000 = 253_402_300_800
"""The first second that no date can name; a time in milliseconds is beyond it."""


def make_auth_provider(auth: AuthConfig, database: Database) -> AuthProvider | None:
    """Return the verifier for HTTP requests, or None if the mode needs no credential."""
    if auth.mode == "keys":
        return KeyVerifier(database)
    if auth.mode == "jwt":
        return StrictJWTVerifier(auth)
    return None


class KeyVerifier(TokenVerifier):
    """Verifies API keys. It looks each one up per call, so creating or revoking a key takes effect immediately."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the caller of an active key, or None."""
        row = await api_keys.find_active_key(self._database, token)
        if row is None:
            return None
        return _make_token(row["tenant_id"], row["actor"], row["roles"], elevated=row["elevated"])


class StrictJWTVerifier(JWTVerifier):
    """Verifies JWTs, and requires that they expire, are already valid, and name a subject and a tenant."""

    def __init__(self, auth: AuthConfig) -> None:
        super().__init__(**auth.model_dump(include={"issuer", "audience", "jwks_uri", "public_key", "algorithm"}))
        self._auth = auth

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the caller a valid token names, or None."""
        try:
            verified = await super().verify_token(token)
        except (ArithmeticError, RecursionError, TypeError, ValueError):
            # The library lets through what a malformed token makes it raise.
            return None
        if verified is None or not _is_currently_valid(verified.claims, time.time()):
            return None
        subject, tenant = verified.claims.get("sub"), verified.claims.get(self._auth.tenant_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_ACTOR_CHARACTERS or not subject.isprintable():
            return None
        try:
            validate_tenant(tenant)
        except InvalidInput:
            return None
        claimed = verified.claims.get(self._auth.roles_claim)
        roles = [role for role in claimed if isinstance(role, str)] if isinstance(claimed, list) else []
        elevated = verified.claims.get(self._auth.elevated_claim) is True
        accepted = _make_token(str(tenant), subject, roles, elevated=elevated)
        accepted.expires_at = int(verified.claims["exp"])
        return accepted


def _is_currently_valid(claims: Mapping[str, Any], now: float) -> bool:
    """Whether the token expires later than now and its `nbf` and `iat` are not in the future."""
    expires, *starts = (claims.get(name) for name in ("exp", "nbf", "iat"))
    if not _is_time(expires) or expires <= now:
        return False
    return all(start is None or (_is_time(start) and start <= now + _LEEWAY_SECONDS) for start in starts)


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _YEAR_10000


def token_for(caller: Caller) -> AccessToken:
    """Return the access token of a caller this process created itself."""
    return _make_token(
        caller.tenant,
        caller.actor,
        caller.roles,
        elevated=caller.elevated,
        session_id=caller.session_id,
        home_tenant=caller.home_tenant,
    )


def _make_token(tenant: str, actor: str, roles: Iterable[str], **claims: Any) -> AccessToken:
    """Return a token without its credential; its claim has the fields of the `Caller`."""
    caller = {"tenant": tenant, "actor": actor, "roles": frozenset(roles), **claims}
    return AccessToken(token="-", client_id=actor, scopes=[], claims={_CLAIM: caller})  # noqa: S106


def identify_caller(auth: AuthConfig, butler: str, guarded: bool, request_id: str) -> Caller:
    """Return the current caller: the one the host acts for, the credential's, or one of the configured tenant.

    Raises `Forbidden` if a credential is required and none was sent.
    """
    acting = acting_caller.get()
    if acting is not None:
        return replace(acting, request_id=request_id)
    token = get_access_token()
    if token is not None:
        return _with_named_session(caller_from_token(token, butler=butler, request_id=request_id))
    if guarded:
        raise Forbidden("this butler requires a credential", hint="Send Authorization: Bearer <key or token>.")
    return _with_named_session(Caller(tenant=auth.tenant, butler=butler, actor="local", request_id=request_id))


def _with_named_session(caller: Caller) -> Caller:
    """Return the caller with the session and agent that the request names, unless its credential is a session's."""
    if caller.session_id is not None:
        return caller
    try:
        headers = get_http_request().headers
    except RuntimeError:
        return caller
    try:
        session_id = str(UUID(headers.get(SESSION_HEADER, "")))
    except ValueError:
        return caller
    agent = headers.get(AGENT_HEADER, "")
    details = {"agent": agent} if _AGENT_NAME.fullmatch(agent) else {}
    return replace(caller, session_id=session_id, details=details)


def caller_from_token(token: AccessToken, *, butler: str, request_id: str) -> Caller:
    """Return the caller of a verified token."""
    return Caller(butler=butler, request_id=request_id, **token.claims[_CLAIM])
