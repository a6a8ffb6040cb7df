"""Puts a butler into a project of Claude Code, with hooks around each session, and takes it out again."""

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

_FOLDER = ".claude"
SERVERS, SETTINGS, LOCAL_SETTINGS = ".mcp.json", f"{_FOLDER}/settings.json", f"{_FOLDER}/settings.local.json"
HOOK_SECONDS = 10
_HEALTH_SECONDS = 2.0
_HOOKS = {"SessionStart": "session-start", "SessionEnd": "session-end"}

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file as it is and as it will be; None where there is none."""

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """The difference, as people read it."""
        old, new = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(unified_diff(old, new, str(self.path), str(self.path)))

    def apply(self) -> None:
        """Write the file, or remove it where nothing is left in it."""
        if self.after is None:
            self.path.unlink(missing_ok=True)
            if self.path.parent.name == _FOLDER and not any(self.path.parent.iterdir()):
                self.path.parent.rmdir()
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.after, encoding="utf-8")


def server_entry(config: Configuration, *, over_http: bool) -> Json:
    """The butler as an MCP client's configuration names it."""
    butler = config.butler
    if not over_http:
        program, *rest = _program()
        return {"command": program, "args": [*rest, "run", str(config.folder.resolve()), "--stdio"], **_home()}
    found: Json = {"type": "http", "url": f"{_address(config)}/mcp"}
    if butler.auth.mode != "local":
        found["headers"] = {"Authorization": "Bearer ${BUTLERS_KEY}"}
    return found


async def check_address(config: Configuration) -> None:
    """Refuse the address of a butler that can't be told from its file, or where another one answers."""
    named = config.butler.name
    if config.butler.port == 0:
        raise ConfigurationFault("butler.port is 0, any free one", hint="Give the butler a port of its own.")
    try:
        async with httpx2.AsyncClient(timeout=_HEALTH_SECONDS, trust_env=False) as http:
            told = (await http.get(f"{_address(config)}/health")).json()
    except (httpx2.HTTPError, ValueError):
        # It need not run yet.
        return
    if isinstance(told, dict) and told.get("butler", named) != named:
        raise ConfigurationFault(
            f"at {_address(config)} the butler {told['butler']} answers, and not {named}",
            hint=f"Set butler.port of {named} to the port it runs on.",
        )


def mcp_configuration(config: Configuration, *, over_http: bool) -> Json:
    """The JSON that any MCP client takes."""
    return {"mcpServers": {config.butler.name: server_entry(config, over_http=over_http)}}


def plan_connect(config: Configuration, project: Path, *, over_http: bool, local: bool) -> list[FileChange]:
    """What has to be written so that Claude Code has the butler in that project; what is there stays."""
    tools, settings = _read(project / SERVERS), _read(project / _settings(local=local))
    known = {
        **_table(tools.value, "mcpServers", tools.path),
        **mcp_configuration(config, over_http=over_http)["mcpServers"],
    }
    hooks = _without_ours(_table(settings.value, "hooks", settings.path), config)
    for event, word in _HOOKS.items():
        hooks[event] = [*hooks.get(event, []), {"hooks": [_hook(config, word)]}]
    return _changes(
        tools.changed({**tools.value, "mcpServers": known}),
        settings.changed({**settings.value, "hooks": hooks}),
        # In both files they would run twice.
        _unhooked(project / _settings(local=not local), config),
    )


def plan_remove(config: Configuration, project: Path) -> list[FileChange]:
    """What has to be written so that nothing of the butler is left in that project; everything else stays."""
    tools = _read(project / SERVERS)
    known = dict(_table(tools.value, "mcpServers", tools.path))
    known.pop(config.butler.name, None)
    changes = [tools.changed(_with(tools.value, "mcpServers", known))]
    return _changes(*changes, *(_unhooked(project / name, config) for name in (SETTINGS, LOCAL_SETTINGS)))


def _unhooked(path: Path, config: Configuration) -> "FileChange":
    """A file of settings without the hooks of this butler."""
    settings = _read(path)
    hooks = _without_ours(_table(settings.value, "hooks", path), config)
    return settings.changed(_with(settings.value, "hooks", hooks))


@dataclass(frozen=True, slots=True)
class _JsonFile:
    """A JSON file of the project."""

    path: Path
    text: str | None
    value: Json

    def changed(self, value: Json) -> FileChange:
        after = None if not value else json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        # What means the same is left as it is written.
        return FileChange(self.path, self.text, self.text if value == self.value else after)


def _settings(*, local: bool) -> str:
    return LOCAL_SETTINGS if local else SETTINGS


def _read(path: Path) -> _JsonFile:
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return _JsonFile(path, None, {})
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigurationFault(f"{path} is not a JSON object", hint="Mend or remove it, then connect again.")
    return _JsonFile(path, text, value)


def _table(value: Json, name: str, path: Path) -> Json:
    table = value.get(name, {})
    if not isinstance(table, dict):
        raise ConfigurationFault(f"{path}: {name} is not an object", hint="Mend or remove it, then connect again.")
    return table


def _with(value: Json, name: str, table: Json) -> Json:
    """The value with that table, or without it where it is empty."""
    return {key: table if key == name else each for key, each in value.items() if table or key != name}


def _without_ours(hooks: Json, config: Configuration) -> Json:
    """The hooks without those of this butler."""
    return {event: kept for event, groups in hooks.items() if (kept := list(_others(groups, config)))}


def _others(groups: Any, config: Configuration) -> Iterator[Any]:
    for group in groups if isinstance(groups, list) else [groups]:
        hooks = group.get("hooks") if isinstance(group, Mapping) else None
        if not isinstance(hooks, list):
            yield group
            continue
        others = [hook for hook in hooks if not _is_ours(hook, config)]
        if others == hooks:
            yield group
        elif others:
            yield {**group, "hooks": others}


def _is_ours(hook: Any, config: Configuration) -> bool:
    command = hook.get("command") if isinstance(hook, Mapping) else None
    endings = [_words("hook", word, str(config.folder.resolve())) for word in _HOOKS.values()]
    return isinstance(command, str) and any(command.endswith(f" {ending}") for ending in endings)


def _hook(config: Configuration, word: str) -> Json:
    home = [f"{name}={value}" for name, value in _home().get("env", {}).items()]
    command = _words(*(["env", *home] if home else []), *_program(), "hook", word, str(config.folder.resolve()))
    return {"type": "command", "command": command, "timeout": HOOK_SECONDS}


def _words(*words: str) -> str:
    return shlex.join(words)


def _address(config: Configuration) -> str:
    return http_address(config.butler.http.host, config.butler.port)


def _home() -> Json:
    """Where the memories are, for whoever is not started from this shell; nothing where it is the usual place."""
    given = os.environ.get("BUTLERS_HOME", "").strip()
    return {"env": {"BUTLERS_HOME": str(read_environment().home)}} if given else {}


def _program() -> list[str]:
    """How this very program is started again."""
    beside = Path(sys.executable).parent / "butlers"
    return [str(beside)] if beside.is_file() else [sys.executable, "-m", "butlers.cli"]


def _changes(*changes: FileChange) -> list[FileChange]:
    return [change for change in changes if change.after != change.before]
