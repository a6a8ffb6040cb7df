"""`butlers key`: API keys for a butler that asks for them."""

import re
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show
from butlers.errors import InvalidInput

app = typer.Typer(help='API keys for callers of a butler with `auth.mode = "keys"`.', no_args_is_help=True)
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@app.command()
@command
async def create(
    folder: Folder,
    tenant: Annotated[str, typer.Option(help="The tenant whose memories the key opens.")],
    actor: Annotated[str, typer.Option(help="Who or what will use it; stands in the audit trail.")] = "agent",
    role: Annotated[list[str] | None, typer.Option(help="A role, such as admin.")] = None,
    elevated: Annotated[bool, typer.Option("--elevated", help="May act in other tenants (admins only).")] = False,
    expires: Annotated[str | None, typer.Option(help="When it ends: 12h, 30d, 8w.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a new API key, once.

    Example: `butlers key create . --tenant acme --actor support-bot --expires 30d`
    """
    from butlers import app as composition
    from butlers.environment import read_environment
    from butlers.host import api_keys

    wanted = api_keys.NewKey(
        tenant=tenant, actor=actor, roles=tuple(role or ()), elevated=elevated, expires_at=_moment(expires)
    )
    config = composition.load_configuration(folder)
    async with composition.migrated_database(config, read_environment()) as place, place.owner_connection() as owner:
        key_id, text = await api_keys.create_key(owner, wanted)
    if as_json:
        show([{"id": key_id, "tenant": tenant, "actor": actor, "key": text}], (), as_json=True)
        return
    typer.echo(f"Key {key_id} for tenant {tenant}; keep it, it is not shown again:", err=True)
    typer.echo(text)


@app.command(name="list")
@command
async def list_keys(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Show every key, newest first.

    Example: `butlers key list .`
    """
    from butlers import app as composition
    from butlers.environment import read_environment
    from butlers.host import api_keys

    config = composition.load_configuration(folder)
    async with composition.migrated_database(config, read_environment()) as place, place.owner_connection() as owner:
        known = await api_keys.list_keys(owner)
    now = datetime.now(UTC)
    rows = [{**asdict(key), "state": key.state(now)} for key in known]
    show(rows, ("id", "tenant", "actor", "roles", "elevated", "state", "expires_at"), as_json=as_json)


@app.command()
@command
async def revoke(
    folder: Folder,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id; `butlers key list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """End a key now; the next call with it is refused.

    Example: `butlers key revoke . 3f2a8c1e-…`
    """
    from butlers import app as composition
    from butlers.environment import read_environment
    from butlers.host import api_keys

    try:
        wanted = UUID(key_id)
    except ValueError:
        raise InvalidInput(f"{key_id} is not a key's id", hint="`butlers key list` shows the ids.") from None
    config = composition.load_configuration(folder)
    async with composition.migrated_database(config, read_environment()) as place, place.owner_connection() as owner:
        await api_keys.revoke_key(owner, wanted)
    if as_json:
        show([{"revoked": wanted}], (), as_json=True)
        return
    typer.echo(f"revoked {wanted}")


def _moment(text: str | None) -> datetime | None:
    """The moment that far from now."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,4})([mhdw])", text)
    if match is None:
        raise InvalidInput(f"--expires {text} is not a time span", hint="Write a number and m, h, d or w: 30d.")
    return datetime.now(UTC) + int(match[1]) * _UNITS[match[2]]
