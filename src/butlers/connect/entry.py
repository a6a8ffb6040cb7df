"""A connection of a butler to an agent: the entry of its server, and the commands of its hooks."""

import os
import shlex
import shutil
import sys
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2

from butlers.agents import CLAUDE_CODE, KEY_VARIABLE, Agent, HookName, Slot, fill
from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import ConfigurationFault, InvalidInput
from butlers.http_body import read_json_object
from butlers.prompt_text import fold_line

Json = dict[str, Any]

_UVX_FOLDER = "archive-v0"
_HEALTH_TIMEOUT_SECONDS = 2.0
_MAX_HEALTH_BYTES, _MAX_NAME_CHARACTERS = 10_000, 100
_INHERITED = ("BUTLERS_DATABASE_URL", "BUTLERS_ADMIN_DATABASE_URL")
"""Variables that an entry names but does not contain: they may have a password."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A butler and the agent it is connected to: in one project, or in all of the user's without one."""

    config: Configuration
    agent: Agent
    project: Path | None
    over_http: bool = False
    is_local: bool = False
    """Whether the hooks go to the file of the project that is not shared."""

    @property
    def server_name(self) -> str:
        """The name of the butler's server in the agent's files."""
        return self.agent.server_name(self.config.butler.name)

    @property
    def folder(self) -> str:
        """The butler's folder."""
        return str(self.config.folder.resolve())


def server_entry(connection: Connection) -> Json:
    """Return the butler's entry in the agent's list of servers; raise `InvalidInput` if it can't have one."""
    servers = connection.agent.servers
    if not connection.over_http:
        return fill(servers.stdio, _stdio_values(connection))
    if servers.http is None:
        raise InvalidInput(f"{connection.agent.title} starts its servers itself", hint="Leave out --http.")
    return fill(servers.http, _http_values(connection))


def _stdio_values(connection: Connection) -> dict[Slot, Any]:
    program, *arguments = program_command()
    arguments += ["run", connection.folder, "--stdio"]
    return {
        Slot.NAME: connection.server_name,
        Slot.PROGRAM: program,
        Slot.ARGUMENTS: arguments,
        Slot.COMMAND_LINE: [program, *arguments],
        Slot.ENVIRONMENT: _environment() or None,
        Slot.INHERITED_VARIABLES: [name for name in _INHERITED if os.environ.get(name, "").strip()] or None,
    }


def _http_values(connection: Connection) -> dict[Slot, Any]:
    values: dict[Slot, Any] = {Slot.NAME: connection.server_name, Slot.URL: f"{_address(connection.config)}/mcp"}
    if connection.config.butler.auth.mode == "local":
        return values
    reference = connection.agent.servers.variable
    if reference is None:
        raise InvalidInput(
            f"{connection.agent.title} can't read the key of {connection.config.butler.name} from a variable",
            hint="Leave out --http: a butler that the agent starts needs no key.",
        )
    key = reference.format(KEY_VARIABLE)
    return values | {
        Slot.HEADERS: {"Authorization": f"Bearer {key}"},
        Slot.KEY_VARIABLE: KEY_VARIABLE,
        Slot.KEY_VARIABLES: [KEY_VARIABLE],
    }


def mcp_configuration(config: Configuration, *, over_http: bool) -> Json:
    """Return the configuration for any MCP client."""
    connection = Connection(config, CLAUDE_CODE, None, over_http=over_http)
    return {"mcpServers": {config.butler.name: any_client_entry(connection)}}


def any_client_entry(connection: Connection) -> Json:
    """Return the entry in the form that most clients understand."""
    return server_entry(replace(connection, agent=CLAUDE_CODE))


async def check_address(config: Configuration) -> None:
    """Raise `ConfigurationFault` if the butler has no fixed port, or another butler answers at its address."""
    name = config.butler.name
    if config.butler.port == 0:
        raise ConfigurationFault("butler.port is 0, which means any free port", hint="Give the butler a fixed port.")
    try:
        async with (
            httpx2.AsyncClient(timeout=_HEALTH_TIMEOUT_SECONDS, trust_env=False) as http,
            http.stream("GET", f"{_address(config)}/health") as response,
        ):
            health = await read_json_object(response, _MAX_HEALTH_BYTES)
    except httpx2.HTTPError:
        return  # The butler need not be running yet.
    if health and health.get("butler", name) != name:
        other = fold_line(str(health["butler"])[:_MAX_NAME_CHARACTERS])
        raise ConfigurationFault(
            f"the butler {other} answers at {_address(config)}, not {name}",
            hint=f"Set butler.port of {name} to the port it runs on.",
        )


def hook_handler(connection: Connection, hook: HookName, template: Any) -> Json:
    """Return the agent's entry for a hook."""
    values = {
        Slot.HOOK_COMMAND: shlex.join(hook_command(connection, hook)),
        Slot.HOOK_NAME: f"butlers-{connection.server_name}-{hook}",
    }
    return fill(template, values)


def hook_command(connection: Connection, hook: HookName) -> list[str]:
    """Return the command of a hook."""
    variables = [f"{variable}={value}" for variable, value in _environment().items()]
    environment = ["env", *variables] if variables else []
    # Claude Code is what a hook expects by default.
    agent = [] if connection.agent is CLAUDE_CODE else ["--for", connection.agent.name]
    return [*environment, *program_command(), "hook", hook, connection.folder, *agent]


def is_own_command(connection: Connection, command: Any) -> bool:
    """Whether a command runs a hook of this butler."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    return any(
        words[index] == "hook" and words[index + 2 : index + 3] == [connection.folder] for index in range(len(words))
    )


def program_command(prefix: str = sys.prefix) -> list[str]:
    """Return the command that starts this installation of butlers."""
    if _UVX_FOLDER in Path(prefix).parts:
        # What uvx has unpacked for one run may be deleted later.
        return [shutil.which("uvx") or "uvx", "--from", f"butlers=={version('butlers')}", "butlers"]
    beside = Path(sys.executable).parent / "butlers"
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "butlers.cli"]


def _environment() -> dict[str, str]:
    """Return BUTLERS_HOME for a program that is not started from this shell; empty when it is not set."""
    is_set = bool(os.environ.get("BUTLERS_HOME", "").strip())
    return {"BUTLERS_HOME": str(read_environment().home)} if is_set else {}


def _address(config: Configuration) -> str:
    return http_address(config.butler.http.host, config.butler.port)
