"""The `butlers init`, `run`, `dsn`, `migrate` and `doctor` commands."""

import json
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show_rows

if TYPE_CHECKING:
    from butlers.migrate import Migration


@command
async def init(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder to create or fill.")],
    name: Annotated[str | None, typer.Option(help="The butler's name. Default: the folder's name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a butler: butler.toml with memory enabled, and CLAUDE.md.

    Example: `butlers init my-butler`
    """
    from butlers import scaffold
    from butlers.errors import InvalidInput

    if not folder.strip():
        raise InvalidInput("DIR is blank", hint="Name a folder; `.` is the current one.")
    written = scaffold.write_butler(Path(folder), name)
    if as_json:
        typer.echo(json.dumps([{"wrote": str(path)} for path in written]))
        return
    for path in written:
        typer.echo(f"wrote {path}")
    program = sys.argv[0] if Path(sys.argv[0]).name == "butlers" and not shutil.which("butlers") else "butlers"
    typer.echo(f"Next: {shlex.join([program, 'run', folder])}")


@command
async def run(
    folder: Folder = HERE,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = None,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve MCP on stdin and stdout instead of HTTP.")] = False,
) -> None:
    """Run the butler. Stop it with Ctrl-C or SIGTERM.

    Example: `butlers run examples/general --port 8101`
    """
    from butlers import app
    from butlers.dashboard import LazyDashboard

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
        if butler.dashboard.enabled:
            typer.echo(f"Dashboard:            {address.removesuffix('/mcp')}/", err=True)
        typer.echo(
            f"Connect Claude Code:  claude mcp add --transport http {butler.name} {address}{header}\n"
            f"Any other MCP client: {json.dumps({'mcpServers': {butler.name: entry}})}\n"
            f"ready: {address}",
            err=True,
        )

    await app.serve_http(folder, port, announce=announce, make_pages=LazyDashboard)


@command
async def open_(
    folder: Folder = HERE,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port, if not the configured one.")] = None,
    tenant: Annotated[str | None, typer.Option(help="The tenant. Default: the configured one.")] = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the address and open no browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Open the dashboard of a running butler in the browser, logged in.

    Where a login is needed, the address carries a ticket that is valid once, for a minute.

    Example: `butlers open examples/general`
    """
    from butlers.dashboard.opening import dashboard_address

    address = await dashboard_address(folder, port, tenant)
    if as_json:
        typer.echo(json.dumps({"url": address}))
        return
    typer.echo(address)
    if not only_print:
        import webbrowser

        webbrowser.open(address)


@command
async def dsn(
    folder: Folder = HERE,
    admin: Annotated[
        bool, typer.Option("--admin", help="Print the administrator's URI, which sees all tenants.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the connection URI of the butler's database, for psql.

    Example: `psql "$(butlers dsn .)"`
    """
    from butlers import app
    from butlers.environment import read_environment
    from butlers.errors import ConfigurationFault

    config = app.load_configuration(folder)
    async with app.migrated_database(config, read_environment(), stop=False) as location:
        uri = location.admin_dsn if admin else location.dsn
    if uri is None:
        raise ConfigurationFault("this database has no known administrator", hint="Set BUTLERS_ADMIN_DATABASE_URL.")
    typer.echo(json.dumps({"dsn": uri}) if as_json else uri)


@command
async def migrate(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Migrate the butler's database and print the old and new version of each branch.

    Example: `butlers migrate .`
    """
    from butlers import app
    from butlers.environment import read_environment

    config = app.load_configuration(folder)
    async with app.locate_database(config, read_environment()) as location:
        migration = await app.upgrade_schema(location, app.migration_branches(config))
    show_rows(migration_rows(migration), "branch | from | to", as_json=as_json)


@command
async def doctor(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Check configuration, runtime, database, schema, model, jobs and backup, and show how to fix each problem.

    Example: `butlers doctor .`
    """
    from butlers import doctor as checkup
    from butlers.environment import read_environment

    checks = await checkup.run_checks(folder, read_environment())
    show_rows([asdict(check) for check in checks], "state | name | found / fix:", as_json=as_json)
    if any(check.state == "fail" for check in checks):
        raise typer.Exit(1)


def migration_rows(migration: "Migration") -> list[dict[str, str]]:
    """Return each branch of the schema with its version before and after."""
    return [
        {"branch": branch, "from": migration.before.get(branch) or "nothing", "to": head}
        for branch, head in migration.after.items()
    ]


COMMANDS = (init, run, open_, doctor)
DATABASE_COMMANDS = (dsn, migrate)
