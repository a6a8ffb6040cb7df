"""Changes to a Claude Code project that connect a butler with its hooks, or remove it."""

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import httpx2

from butlers.config import Configuration
from butlers.config_types import http_address
from butlers.environment import read_environment
from butlers.errors import ConfigurationFault
from butlers.http_body import read_json_object
from butlers.prompt_text import fold_line

_FOLDER = ".claude"
SERVERS, SETTINGS, LOCAL_SETTINGS = ".mcp.json", f"{_FOLDER}/settings.json", f"{_FOLDER}/settings.local.json"
# Longer than hooks.HOOK_TIMEOUT_SECONDS, so that a hook ends by itself first.
_HOOK_TIMEOUT_SECONDS = 10
_HEALTH_TIMEOUT_SECONDS = 2.0
_MAX_HEALTH_BYTES, _MAX_NAME_CHARACTERS = 10_000, 100
_HOOK_COMMANDS = {"SessionStart": "session-start", "SessionEnd": "session-end"}
_FIX = "Fix or delete it, then connect again."

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileChange:
    """The text of a file before and after a change; None when the file does not exist."""

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(unified_diff(old, new, str(self.path), str(self.path)))

    def apply(self) -> None:
        """Write the file, or delete it if nothing is left in it."""
        if self.after is None:
            self.path.unlink(missing_ok=True)
            if self.path.parent.name == _FOLDER and not any(self.path.parent.iterdir()):
                self.path.parent.rmdir()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.after, encoding="utf-8")


def server_entry(config: Configuration, *, over_http: bool) -> Json:
    """Return the butler's entry in the configuration of an MCP client."""
    if not over_http:
        program, *arguments = _program()
        return {"command": program, "args": [*arguments, "run", str(config.folder.resolve()), "--stdio"], **_home()}
    entry: Json = {"type": "http", "url": f"{_address(config)}/mcp"}
    if config.butler.auth.mode != "local":
        entry["headers"] = {"Authorization": "Bearer ${BUTLERS_KEY}"}
    return entry


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


def mcp_configuration(config: Configuration, *, over_http: bool) -> Json:
    """Return the configuration for any MCP client."""
    return {"mcpServers": {config.butler.name: server_entry(config, over_http=over_http)}}


def plan_connect(config: Configuration, project: Path, *, over_http: bool, local: bool) -> list[FileChange]:
    """Return the changes that add the butler and its hooks to the project; other entries stay."""
    chosen, other = (LOCAL_SETTINGS, SETTINGS) if local else (SETTINGS, LOCAL_SETTINGS)
    servers, settings = _read(project / SERVERS), _read(project / chosen)
    entry = {config.butler.name: server_entry(config, over_http=over_http)}
    hooks = _without_own_hooks(settings.table("hooks"), config)
    for event, command in _HOOK_COMMANDS.items():
        hooks[event] = [*hooks.get(event, []), {"hooks": [_hook(config, command)]}]
    return _changes(
        servers.change("mcpServers", servers.table("mcpServers") | entry),
        settings.change("hooks", hooks),
        # Hooks in both files would run twice.
        _remove_hooks(project / other, config),
    )


def plan_remove(config: Configuration, project: Path) -> list[FileChange]:
    """Return the changes that remove the butler and its hooks from the project; other entries stay."""
    servers = _read(project / SERVERS)
    others = {name: entry for name, entry in servers.table("mcpServers").items() if name != config.butler.name}
    return _changes(
        servers.change("mcpServers", others),
        *(_remove_hooks(project / name, config) for name in (SETTINGS, LOCAL_SETTINGS)),
    )


def _remove_hooks(path: Path, config: Configuration) -> FileChange:
    settings = _read(path)
    return settings.change("hooks", _without_own_hooks(settings.table("hooks"), config))


@dataclass(frozen=True, slots=True)
class _JsonFile:
    """A JSON file of the project: its text and its parsed value."""

    path: Path
    text: str | None
    value: Json

    def table(self, name: str) -> Json:
        table = self.value.get(name, {})
        if not isinstance(table, dict):
            raise ConfigurationFault(f"{self.path}: {name} is not an object", hint=_FIX)
        return table

    def change(self, name: str, table: Json) -> FileChange:
        """Return the change that replaces a table, or removes it if it is empty."""
        value = {key: entry for key, entry in {**self.value, name: table}.items() if key != name or table}
        try:
            after = json.dumps(value, indent=2, ensure_ascii=False) + "\n" if value else None
            # Keep the formatting when the value is unchanged.
            return FileChange(self.path, self.text, self.text if value == self.value else after)
        except RecursionError:
            raise _nested_too_deeply(self.path) from None


def _read(path: Path) -> _JsonFile:
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return _JsonFile(path, None, {})
    except ValueError:
        value = None
    except RecursionError:
        raise _nested_too_deeply(path) from None
    if not isinstance(value, dict):
        raise ConfigurationFault(f"{path} is not a JSON object", hint=_FIX)
    return _JsonFile(path, text, value)


def _nested_too_deeply(path: Path) -> ConfigurationFault:
    return ConfigurationFault(f"{path} is nested too deeply to be a configuration", hint=_FIX)


def _without_own_hooks(hooks: Json, config: Configuration) -> Json:
    return {event: kept for event, groups in hooks.items() if (kept := list(_other_groups(groups, config)))}


def _other_groups(groups: Any, config: Configuration) -> Iterator[Any]:
    for group in groups if isinstance(groups, list) else [groups]:
        hooks = group.get("hooks") if isinstance(group, Mapping) else None
        if not isinstance(hooks, list):
            yield group
            continue
        others = [hook for hook in hooks if not _is_own_hook(hook, config)]
        if others == hooks:
            yield group
        elif others:
            yield {**group, "hooks": others}


def _is_own_hook(hook: Any, config: Configuration) -> bool:
    command = hook.get("command") if isinstance(hook, Mapping) else None
    folder = str(config.folder.resolve())
    endings = tuple(" " + shlex.join(["hook", name, folder]) for name in _HOOK_COMMANDS.values())
    return isinstance(command, str) and command.endswith(endings)


def _hook(config: Configuration, name: str) -> Json:
    variables = [f"{variable}={value}" for variable, value in _home().get("env", {}).items()]
    environment = ["env", *variables] if variables else []
    command = [*environment, *_program(), "hook", name, str(config.folder.resolve())]
    return {"type": "command", "command": shlex.join(command), "timeout": _HOOK_TIMEOUT_SECONDS}


def _address(config: Configuration) -> str:
    return http_address(config.butler.http.host, config.butler.port)


def _home() -> Json:
    """Return BUTLERS_HOME for a program that is not started from this shell; empty when it is not set."""
    is_set = bool(os.environ.get("BUTLERS_HOME", "").strip())
    return {"env": {"BUTLERS_HOME": str(read_environment().home)}} if is_set else {}


def _program() -> list[str]:
    """Return the command that starts this installation of butlers."""
    beside = Path(sys.executable).parent / "butlers"
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "butlers.cli"]


def _changes(*changes: FileChange) -> list[FileChange]:
    return [change for change in changes if change.after != change.before]
