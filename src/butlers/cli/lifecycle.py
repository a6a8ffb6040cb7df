"""`butlers init`, `run`, `dsn`, `migrate`, `doctor`."""

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show


@command
async def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make or fill.")],
    name: Annotated[str | None, typer.Option(help="The butler's name; the folder's by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write butler.toml and CLAUDE.md for a new butler with memory on.

    Example: `butlers init my-butler`
    """
    from butlers import scaffold

    written = scaffold.write_butler(folder, name)
    if as_json:
        show([{"wrote": path} for path in written], (), as_json=True)
        return
    for path in written:
        typer.echo(f"wrote {path}")
    called = sys.argv[0] if Path(sys.argv[0]).name == "butlers" and not shutil.which("butlers") else "butlers"
    typer.echo(f"Next: {called} run {folder}")


@command
async def run(
    folder: Folder = HERE,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Listen here instead (0: any free port).")
    ] = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on stdin and stdout instead of HTTP.")] = False,
) -> None:
    """Run the butler until SIGTERM or Ctrl-C.

    Example: `butlers run examples/general --port 8101`
    """
    from butlers import app

    if stdio:
        await app.serve_stdio(folder)
        return

    def announce(address: str) -> None:
        butler = app.load_configuration(folder).butler
        entry: dict[str, object] = {"type": "http", "url": address}
        header = ""
        if butler.auth.mode != "local":
            header = ' --header "Authorization: Bearer $KEY"'
            entry["headers"] = {"Authorization": "Bearer $KEY"}
        typer.echo(
            f"Connect Claude Code:  claude mcp add --transport http {butler.name} {address}{header}\n"
            f"Any other MCP client: {json.dumps({'mcpServers': {butler.name: entry}})}\n"
            f"ready: {address}",
            err=True,
        )

    await app.serve_http(folder, port, announce=announce)


@command
async def dsn(
    folder: Folder = HERE,
    admin: Annotated[bool, typer.Option("--admin", help="The administrator's, who sees every tenant.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a connection URI of the butler's database that psql takes.

    Example: `psql "$(butlers dsn .)"`
    """
    from butlers import app
    from butlers.environment import read_environment
    from butlers.errors import ConfigurationFault

    config = app.load_configuration(folder)
    async with app.migrated_database(config, read_environment(), stop=False) as place:
        uri = place.admin_dsn if admin else place.dsn
    if uri is None:
        raise ConfigurationFault("no administrator of this database is known", hint="Set BUTLERS_ADMIN_DATABASE_URL.")
    typer.echo(json.dumps({"dsn": uri}) if as_json else uri)


@command
async def migrate(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Migrate the butler's database and say from where to where.

    Example: `butlers migrate .`
    """
    from butlers import app
    from butlers.environment import read_environment

    config = app.load_configuration(folder)
    async with app.locate_database(config, read_environment()) as place:
        migration = await app.upgrade_schema(place, app.migration_branches(config))
    rows = [
        {"branch": branch, "from": migration.before.get(branch) or "nothing", "to": now}
        for branch, now in migration.after.items()
    ]
    show(rows, ("branch", "from", "to"), as_json=as_json)


@command
async def doctor(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Check configuration, database, row-level security, runtime and backlog, and say how to mend each.

    Example: `butlers doctor .`
    """
    from butlers import doctor as surgery
    from butlers.environment import read_environment

    checks = await surgery.run_checks(folder, read_environment())
    show(checks, ("state", "name", "found", "fix"), as_json=as_json)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(1)


COMMANDS = (init, run, dsn, migrate, doctor)
