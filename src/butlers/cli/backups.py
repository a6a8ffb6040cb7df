"""The `butlers backup` and `restore` commands."""

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.lifecycle import show_migration
from butlers.cli.output import AsJson, Folder, command


@command
async def backup(
    folder: Folder,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file. Default: the butler's name and the time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Back up the butler's database to a file. The butler may be running.

    Example: `butlers backup . /backups/home.backup`
    """
    from butlers import app
    from butlers import backup as backups
    from butlers.environment import read_environment

    config = app.load_configuration(folder)
    now = datetime.now().astimezone().strftime("%Y-%m-%dT%H%M%S")
    written = await backups.create(config, read_environment(), file or Path(f"{config.butler.name}-{now}.backup"))
    if as_json:
        typer.echo(json.dumps({"file": str(written.file), "bytes": written.bytes}))
        return
    typer.echo(f"wrote {written.file}, {written.bytes:,} bytes")


@command
async def restore(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file from `butlers backup`.")],
    as_json: AsJson = False,
) -> None:
    """Restore a backup into the butler's empty database and migrate it.

    Example: `butlers restore new-home /backups/home.backup`
    """
    from butlers import app
    from butlers import backup as backups
    from butlers.environment import read_environment

    migration = await backups.restore(app.load_configuration(folder), read_environment(), file)
    show_migration(migration, as_json=as_json)


COMMANDS = (backup, restore)
