"""API keys: made once, kept as hashes, ended at once. The owner of the tables administers them."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from typing import Any
from uuid import UUID, uuid4

import aiosql
import asyncpg

from butlers.caller import validate_tenant
from butlers.db import Database, PlainConnection
from butlers.errors import InvalidInput, NotFound

PREFIX = "butlers"
ROLES = frozenset({"admin"})
_queries: Any = aiosql.from_path(str(resources.files(__package__) / "sql" / "keys.sql"), "asyncpg")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """What a new key stands for."""

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
        if self.elevated and "admin" not in self.roles:
            raise InvalidInput("elevation is for admins", hint="Add --role admin.")
        if not self.actor.strip():
            raise InvalidInput("a key needs an actor", hint="Name who or what will use it.")


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept."""

    tenant: str
    id: UUID
    actor: str
    roles: tuple[str, ...]
    elevated: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def state(self, now: datetime) -> str:
        """Whether it still opens the door."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires_at and self.expires_at <= now else "active"


async def create_key(owner: PlainConnection, key: NewKey) -> tuple[UUID, str]:
    """The new key's id and its text, which is shown once and never again."""
    key_id, secret = uuid4(), secrets.token_urlsafe(32)
    await _queries.insert(
        owner,
        tenant_id=key.tenant,
        id=key_id,
        actor=key.actor,
        roles=list(key.roles),
        elevated=key.elevated,
        secret_hash=_hash_secret(secret),
        expires_at=key.expires_at,
    )
    return key_id, f"{PREFIX}_{key_id.hex}_{secret}"


async def list_keys(owner: PlainConnection) -> list[Key]:
    """All keys of all tenants."""
    return [_key(row) async for row in _queries.everyone(owner)]


async def revoke_key(owner: PlainConnection, key_id: UUID) -> None:
    """End a key now; the next call with it is refused."""
    if await _queries.revoke(owner, id=key_id) is None:
        raise NotFound(f"no key {key_id} is in force", hint="`butlers key list` shows them.")


async def find_active_key(database: Database, text: str) -> asyncpg.Record | None:
    """The key a caller showed, when it is in force."""
    key_id, secret = _split_key(text)
    if key_id is None:
        return None
    row = await database.fetch_row(_queries.find.sql, key_id)
    if row is None or not hmac.compare_digest(row["secret_hash"], _hash_secret(secret)):
        return None
    now = datetime.now(UTC)
    in_force = row["revoked_at"] is None and (row["expires_at"] is None or row["expires_at"] > now)
    return row if in_force else None


def _split_key(text: str) -> tuple[UUID | None, str]:
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    try:
        return (UUID(hex=key_id), secret) if prefix == PREFIX and secret else (None, "")
    except ValueError:
        return None, ""


def _hash_secret(secret: str) -> bytes:
    # The secret is 256 random bits: a slow hash would protect nothing more and cost every call.
    return hashlib.sha256(secret.encode()).digest()


def _key(row: asyncpg.Record) -> Key:
    return Key(
        row["tenant_id"], row["id"], row["actor"], tuple(row["roles"]), row["elevated"],
        row["created_at"], row["expires_at"], row["revoked_at"],
    )  # fmt: skip
