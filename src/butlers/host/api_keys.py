"""API keys: create, list, revoke and look up. Only hashes of the secrets are stored."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from uuid import UUID, uuid4

import aiosql
import asyncpg

from butlers.caller import ADMIN, READER, validate_tenant
from butlers.db import Database, PlainConnection
from butlers.errors import InvalidInput, NotFound

PREFIX = "butlers"
ROLES = frozenset({ADMIN, READER})
_KEY = re.compile(PREFIX + "_([0-9a-f]{32})_(.+)")
_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "keys.sql"), "asyncpg")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """Caller and rights of a key that is to be created."""

    tenant: str
    actor: str
    roles: tuple[str, ...] = ()
    elevated: bool = False
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        validate_tenant(self.tenant)
        if unknown := set(self.roles) - ROLES:
            raise InvalidInput(
                f"unknown role {', '.join(sorted(unknown))}", hint=f"Roles: {', '.join(sorted(ROLES))}."
            )
        if set(self.roles) >= ROLES:
            raise InvalidInput("a key can't be both admin and reader", hint="Create two keys.")
        if self.elevated and ADMIN not in self.roles:
            raise InvalidInput("only an admin key can be elevated", hint="Add --role admin.")
        if not self.actor.strip():
            raise InvalidInput("a key needs an actor", hint="Name the person or program that will use it.")


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key, without its secret."""

    tenant: str
    id: UUID
    actor: str
    roles: Sequence[str]
    elevated: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def state(self, now: datetime) -> str:
        """Return `active`, `expired` or `revoked`."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= now else "active"


async def create_key(owner: PlainConnection, key: NewKey) -> tuple[UUID, str]:
    """Store a key; return its id and its text, which can't be read again later."""
    key_id, secret = uuid4(), secrets.token_urlsafe(32)
    await _queries.insert_key(owner, id=key_id, secret_hash=hash_secret(secret), **asdict(key))
    return key_id, f"{PREFIX}_{key_id.hex}_{secret}"


async def list_keys(owner: PlainConnection) -> list[Key]:
    """Return all keys of all tenants, newest first."""
    return [Key(**row) async for row in _queries.list_keys(owner)]


async def revoke_key(owner: PlainConnection, key_id: UUID) -> None:
    """Revoke a key: the next call with it is refused. Raises `NotFound` if no active key has this id."""
    if await _queries.revoke_key(owner, id=key_id) is None:
        raise NotFound(f"there is no active key {key_id}", hint="`butlers key list` shows all keys.")


async def find_active_key(database: Database, text: str) -> asyncpg.Record | None:
    """Return the row of the key with this text, or None if it is unknown, expired or revoked."""
    parts = _KEY.fullmatch(text)
    row = await find_active_key_by_id(database, UUID(hex=parts[1])) if parts else None
    if parts is None or row is None or not hmac.compare_digest(row["secret_hash"], hash_secret(parts[2])):
        return None
    return row


async def find_active_key_by_id(database: Database, key_id: UUID) -> asyncpg.Record | None:
    """Return the row of a key, or None if it is unknown, expired or revoked."""
    row = await database.fetch_row(_queries.find_key.sql, key_id)
    if row is None:
        return None
    is_expired = row["expires_at"] is not None and row["expires_at"] <= datetime.now(UTC)
    return None if is_expired or row["revoked_at"] else row


def hash_secret(secret: str) -> bytes:
    """Return the hash; a fast one is enough, because a secret has 256 random bits and every call computes it."""
    return hashlib.sha256(secret.encode()).digest()
