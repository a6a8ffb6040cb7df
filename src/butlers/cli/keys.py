"""The `butlers key` commands: create, list and revoke API keys."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show_rows
from butlers.errors import InvalidInput

if TYPE_CHECKING:
    from butlers.db import PlainConnection

app = typer.Typer(help='Manage API keys for a butler with `auth.mode = "keys"`.', no_args_is_help=True)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_LAYOUT = "state | expires_at | id / tenant: / actor: / roles: / elevated:"


@app.command()
@command
async def create(
    folder: Folder,
    tenant: Annotated[str, typer.Option(help="The tenant whose memories the key gives access to.")],
    actor: Annotated[str, typer.Option(help="The user of the key, as recorded in the audit trail.")] = "agent",
    role: Annotated[list[str] | None, typer.Option(help="admin, or reader for a key that only reads.")] = None,
    elevated: Annotated[bool, typer.Option("--elevated", help="Allow other tenants too (admins only).")] = False,
    expires: Annotated[str | None, typer.Option(help="Time until the key expires: 12h, 30d, 8w.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and print it. It is not shown again.

    Example: `butlers key create . --tenant acme --actor support-bot --expires 30d`
    """
    from butlers.host import api_keys

    key = api_keys.NewKey(
        tenant=tenant, actor=actor, roles=tuple(role or ()), elevated=elevated, expires_at=_expiry(expires)
    )
    async with _owner_connection(folder) as owner:
        key_id, text = await api_keys.create_key(owner, key)
    if as_json:
        typer.echo(json.dumps([{"id": str(key_id), "tenant": tenant, "actor": actor, "key": text}]))
        return
    typer.echo(f"Key {key_id} for tenant {tenant}. Store it now, it is not shown again:", err=True)
    typer.echo(text)


@app.command(name="list")
@command
async def list_keys(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """List all keys, newest first.

    Example: `butlers key list .`
    """
    from butlers.host import api_keys

    async with _owner_connection(folder) as owner:
        keys = await api_keys.list_keys(owner)
    now = datetime.now(UTC)
    show_rows([{**asdict(key), "state": key.state(now)} for key in keys], _LAYOUT, as_json=as_json)


@app.command()
@command
async def revoke(
    folder: Folder,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `butlers key list`.")],
    as_json: AsJson = False,
) -> None:
    """Revoke a key. The next call with it is refused.

    Example: `butlers key revoke . 3f2a8c1e-…`
    """
    from butlers.host import api_keys

    try:
        parsed = UUID(key_id)
    except ValueError:
        raise InvalidInput(f"{key_id} is not a key id", hint="`butlers key list` shows the ids.") from None
    async with _owner_connection(folder) as owner:
        await api_keys.revoke_key(owner, parsed)
    typer.echo(json.dumps([{"revoked": str(parsed)}]) if as_json else f"revoked {parsed}")


@asynccontextmanager
async def _owner_connection(folder: Path) -> "AsyncIterator[PlainConnection]":
    """Open the butler's migrated database as its owner."""
    from butlers import app as composition
    from butlers.environment import read_environment

    config = composition.load_configuration(folder)
    async with (
        composition.migrated_database(config, read_environment()) as location,
        location.owner_connection() as owner,
    ):
        yield owner


def _expiry(text: str | None) -> datetime | None:
    """Return the time that a span such as 30d from now ends."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text)
    if match is None:
        raise InvalidInput(f"--expires {text} is not a time span", hint="Write a number and m, h, d or w: 30d.")
    return datetime.now(UTC) + int(match[1]) * _UNITS[match[2]]
