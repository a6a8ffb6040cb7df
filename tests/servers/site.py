"""A butler on an external server: its folder, its database and the commands of the program."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from butlers import app
from butlers.config import Configuration
from butlers.environment import Environment
from database.butler_processes import environment_of, new_name, write_folder
from servers.external_servers import ExternalServer

_numbers = count()
Result = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class ExternalSite:
    """A butler whose URL names a database of an external server."""

    server: ExternalServer
    database: str
    folder: Path
    url: str
    admin_url: str | None = None

    @property
    def config(self) -> Configuration:
        return app.load_configuration(self.folder)

    @property
    def environment(self) -> Environment:
        return environment_of(self.folder, self.url, self.admin_url)

    def with_port(self, port: int, **parameters: str) -> "ExternalSite":
        """Return the same site reached through another port and with other parameters."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())

        def changed(url: str) -> str:
            parts = urlsplit(url)
            netloc = f"{parts.netloc.rpartition(':')[0]}:{port}"
            return urlunsplit(parts._replace(netloc=netloc, query=query))

        return replace(self, url=changed(self.url), admin_url=self.admin_url and changed(self.admin_url))

    def of_database(self, database: str) -> "ExternalSite":
        """Return the site in another database of the server."""
        return replace(self, database=database, url=self.server.url(database))

    def of_role(self, role: str, password: str) -> "ExternalSite":
        """Return the site with the URL of another role."""
        return replace(self, url=self.server.url(self.database, role, password))

    def variables(self) -> dict[str, str]:
        admin = {"BUTLERS_ADMIN_DATABASE_URL": self.admin_url} if self.admin_url else {}
        return {"BUTLERS_DATABASE_URL": self.url, "BUTLERS_HOME": str(self.folder), **admin}

    def butlers(self, *arguments: object, seconds: float = 90, **variables: str) -> Result:
        """Run `butlers …` in a new process."""
        return subprocess.run(
            [sys.executable, "-m", "butlers.cli", *map(str, arguments)],
            env={**os.environ, "COLUMNS": "200", **self.variables(), **variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def json(self, *arguments: object, **variables: str) -> Any:
        """Return the JSON output of a command that succeeds."""
        result = self.butlers(*arguments, "--json", **variables)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)


async def new_site(
    server: ExternalServer, at: Path, *, name: str | None = None, create: str = "", extra: str = ""
) -> ExternalSite:
    """Create a database and a butler that reaches it as the superuser."""
    name = name or new_name()
    database = f"site_{next(_numbers)}_{name}"
    await server.run(f"create database {database} {create}")
    folder = write_folder(at, extra, name=name, probe=False)
    return ExternalSite(server, database, folder, server.url(database))


async def new_administered_site(server: ExternalServer, at: Path) -> ExternalSite:
    """Create a database whose owner may create roles and is no superuser, and a butler with that role's URL."""
    site = await new_site(server, at)
    admin = f"{site.database}_admin"
    await server.run(
        f"create role {admin} login createrole password 'first'", f"alter database {site.database} owner to {admin}"
    )
    await server.run("create extension vector", database=site.database)
    return site.of_role(admin, "first")
