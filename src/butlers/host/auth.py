"""Who is calling: API keys and tokens in, a Caller out."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token

from butlers.caller import Caller, validate_tenant
from butlers.config import AuthConfig
from butlers.db import Database
from butlers.errors import Forbidden, InvalidInput
from butlers.host import api_keys
from butlers.host.local_client import acting_caller

_CLAIM = "butlers"
_LEEWAY_SECONDS = 60
_LONGEST_ACTOR = 200


def make_auth_provider(auth: AuthConfig, database: Database) -> AuthProvider | None:
    """What guards the door over HTTP; nothing on loopback without keys."""
    if auth.mode == "keys":
        return KeyVerifier(database)
    if auth.mode == "jwt":
        return StrictJWTVerifier(auth)
    return None


class KeyVerifier(TokenVerifier):
    """API keys, looked up at every call, so that a key works at once and stops at once."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller behind a key that is in force."""
        row = await api_keys.find_active_key(self._database, token)
        if row is None:
            return None
        return _make_token(row["tenant_id"], row["actor"], row["roles"], elevated=row["elevated"])


class StrictJWTVerifier(JWTVerifier):
    """Bearer tokens with everything checked: also that they expire, are valid already and name a tenant."""

    def __init__(self, auth: AuthConfig) -> None:
        super().__init__(
            issuer=auth.issuer,
            audience=auth.audience,
            jwks_uri=auth.jwks_uri,
            public_key=auth.public_key,
            algorithm=auth.algorithm,
        )
        self._auth = auth

    async def verify_token(self, token: str) -> AccessToken | None:
        """The caller a valid token names."""
        verified = await super().verify_token(token)
        if verified is None or not _is_currently_valid(verified.claims, time.time()):
            return None
        subject, tenant = verified.claims.get("sub"), verified.claims.get(self._auth.tenant_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_ACTOR:
            return None
        try:
            validate_tenant(tenant)
        except InvalidInput:
            return None
        roles = verified.claims.get(self._auth.roles_claim)
        return _make_token(
            str(tenant),
            subject,
            [role for role in roles if isinstance(role, str)] if isinstance(roles, list) else [],
            elevated=verified.claims.get(self._auth.elevated_claim) is True,
        )


def _is_currently_valid(claims: Mapping[str, Any], now: float) -> bool:
    """A token without an end, or from the future, is nobody's."""
    expires, starts, issued = (claims.get(name) for name in ("exp", "nbf", "iat"))
    if not _is_number(expires) or expires <= now:
        return False
    return all(
        moment is None or (_is_number(moment) and moment <= now + _LEEWAY_SECONDS) for moment in (starts, issued)
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def token_for(caller: Caller) -> AccessToken:
    """What stands for a caller that this process knows."""
    return _make_token(
        caller.tenant,
        caller.actor,
        sorted(caller.roles),
        elevated=caller.elevated,
        session_id=caller.session_id,
        home_tenant=caller.home_tenant,
    )


def _make_token(tenant: str, actor: str, roles: list[str], *, elevated: bool, **more: str | None) -> AccessToken:
    who = {"tenant": tenant, "actor": actor, "roles": list(roles), "elevated": elevated, **more}
    # The credential itself goes no further than this.
    return AccessToken(token="-", client_id=actor, scopes=[], claims={_CLAIM: who})  # noqa: S106


def identify_caller(auth: AuthConfig, *, butler: str, guarded: bool, request_id: str) -> Caller:
    """The caller of the call being served: the one the host acts for, a credential's, or the configured tenant's."""
    acting = acting_caller.get()
    if acting is not None:
        return replace(acting, request_id=request_id)
    token = get_access_token()
    if token is not None:
        return caller_from_token(token, butler=butler, request_id=request_id)
    if guarded:
        raise Forbidden("this butler asks for a credential", hint="Send Authorization: Bearer <key or token>.")
    return Caller(tenant=auth.tenant, butler=butler, actor="local", request_id=request_id)


def caller_from_token(token: AccessToken, *, butler: str, request_id: str) -> Caller:
    """The caller a verified credential stands for."""
    who = token.claims[_CLAIM]
    return Caller(
        tenant=who["tenant"],
        butler=butler,
        actor=who["actor"],
        roles=frozenset(who["roles"]),
        elevated=who["elevated"],
        request_id=request_id,
        session_id=who.get("session_id"),
        home_tenant=who.get("home_tenant"),
    )
