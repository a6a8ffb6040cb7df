"""The `butlers backup` and `restore` commands."""

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.lifecycle import migration_rows
from butlers.cli.output import AsJson, Folder, command

if TYPE_CHECKING:
    from butlers.backup import Restoration

_MEMORY_TABLES = ("facts", "rules", "episodes", "entities")


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
    """Load the rows of a backup into the butler's empty database. No statement of the file is run.

    Example: `butlers restore new-home /backups/home.backup`
    """
    from butlers import app
    from butlers import backup as backups
    from butlers.environment import read_environment

    done = await backups.restore(app.load_configuration(folder), read_environment(), file)
    if as_json:
        schema = migration_rows(done.migration)
        created_at = done.created_at and done.created_at.isoformat()
        typer.echo(
            json.dumps({"created_at": created_at, "tenants": done.tenants, "rows": done.rows, "schema": schema})
        )
        return
    typer.echo(_summary(done))


def _summary(done: "Restoration") -> str:
    """Return what was restored and from when, and the schema with its migration."""
    facts, rules, episodes, entities = (_count(done.rows.get(each, 0), each) for each in _MEMORY_TABLES)
    others = sum(number for table, number in done.rows.items() if table not in _MEMORY_TABLES)
    tenants, other_rows = _count(done.tenants, "tenants"), _count(others, "other rows")
    moment = f"{done.created_at:%Y-%m-%d %H:%M} UTC" if done.created_at else "an unknown time"
    steps = (
        f"{each['from']} → {each['to']}".removeprefix(f"{each['to']} → ") for each in migration_rows(done.migration)
    )
    return (
        f"Restored {facts}, {rules}, {episodes} and {entities} of {tenants}, and {other_rows},\n"
        f"from the backup of {moment} (schema {', '.join(steps)})."
    )


def _count(number: int, things: str) -> str:
    singular = "entity" if things == "entities" else things.removesuffix("s")
    return f"{number:,} {singular if number == 1 else things}"


COMMANDS = (backup, restore)
