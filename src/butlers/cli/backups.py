"""`butlers backup` and `restore`: everything a butler has, in one file and back."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.output import AsJson, Folder, command, show


@command
async def backup(
    folder: Folder,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="Where to; named after the butler and the day by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the butler's whole database to a file, while it runs.

    Example: `butlers backup . /backups/home.backup`
    """
    from butlers import app
    from butlers import backup as backups
    from butlers.environment import read_environment

    config = app.load_configuration(folder)
    today = datetime.now().astimezone().strftime("%Y-%m-%dT%H%M%S")
    made = await backups.create(config, read_environment(), file or Path(f"{config.butler.name}-{today}.backup"))
    if as_json:
        typer.echo(json.dumps({"file": str(made.file), "bytes": made.bytes}))
        return
    typer.echo(f"wrote {made.file}, {made.bytes:,} bytes")


@command
async def restore(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `butlers backup` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Put a backup into the butler's database, which must be empty, and bring it up to date.

    Example: `butlers restore new-home /backups/home.backup`
    """
    from butlers import app
    from butlers import backup as backups
    from butlers.environment import read_environment

    migration = await backups.restore(app.load_configuration(folder), read_environment(), file)
    rows = [
        {"branch": branch, "from": migration.before.get(branch) or "nothing", "to": now}
        for branch, now in migration.after.items()
    ]
    show(rows, ("branch", "from", "to"), as_json=as_json)


COMMANDS = (backup, restore)
