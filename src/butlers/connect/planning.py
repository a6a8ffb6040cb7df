"""The changes that connect a butler to an agent, or remove it."""

import json
from importlib.resources import files
from pathlib import Path

from butlers.agents import HookName, Hooks, Plugin
from butlers.connect.editors import EDITORS, faults_of, table_of
from butlers.connect.entry import Connection, hook_command, server_entry
from butlers.connect.file_change import FileChange, Plan
from butlers.connect.hook_edits import has_own_hooks, remove_hooks, set_hooks

_PLUGIN_HOOKS: tuple[HookName, ...] = ("session-start", "turn-end")
_PLUGIN_MARK = "Written by `butlers connect`"


def plan_connect(connection: Connection) -> list[FileChange]:
    """Return the changes that add the butler and its hooks to the agent's files; other entries stay."""
    return _connect(Plan(_root(connection)), connection).changes()


def new_files(connection: Connection) -> list[FileChange]:
    """Return the files as they would be if the agent had none."""
    return _connect(Plan(_root(connection), lambda _: None), connection).changes()


def plan_hooks(connection: Connection) -> list[FileChange]:
    """Return the changes that add the hooks alone."""
    return _set_hooks(Plan(_root(connection)), connection).changes()


def plan_remove(connection: Connection) -> list[FileChange]:
    """Return the changes that remove the butler and its hooks from the agent's files; other entries stay."""
    plan = Plan(_root(connection))
    match connection.agent.hooks:
        case Plugin():
            plan.edit(hook_paths(connection)[0], lambda text: None if _PLUGIN_MARK in (text or "") else text)
        case Hooks() as hooks:
            for path in hook_paths(connection):
                remove_hooks(plan, connection, hooks, path)
    _edit_servers(plan, connection, is_removed=True)
    return plan.changes()


def server_path(connection: Connection) -> Path:
    """Return the file with the agent's servers."""
    return connection.agent.servers.place.locate(connection.server_name, connection.project)


def hook_paths(connection: Connection) -> list[Path]:
    """Return the files that may have the butler's hooks, the one to write first; empty if the agent has none."""
    hooks, project = connection.agent.hooks, connection.project
    if hooks is None:
        return []
    shared = hooks.place.locate(connection.server_name, project)
    if project is None or isinstance(hooks, Plugin) or not hooks.local:
        return [shared]
    local = project / hooks.local
    return [local, shared] if connection.is_local else [shared, local]


def has_hooks(connection: Connection) -> bool:
    """Whether the agent's files have hooks of this butler, in any form."""
    plan, paths = Plan(_root(connection)), hook_paths(connection)
    if isinstance(connection.agent.hooks, Plugin):
        return plan.text(paths[0]) is not None
    return any(has_own_hooks(connection, plan, path) for path in paths)


def _root(connection: Connection) -> Path:
    return connection.project or connection.agent.servers.place.user_folder.locate()


def _connect(plan: Plan, connection: Connection) -> Plan:
    _edit_servers(plan, connection, is_removed=False)
    return _set_hooks(plan, connection)


def _edit_servers(plan: Plan, connection: Connection, *, is_removed: bool) -> None:
    servers, path, name = connection.agent.servers, server_path(connection), connection.server_name
    editor = EDITORS[servers.format]
    table_of(editor, path, plan.text(path), servers.table)
    with faults_of(path):
        if is_removed:
            plan.edit(path, lambda text: editor.remove_entry(text, servers.table, name))
        else:
            entry = server_entry(connection)
            plan.edit(path, lambda text: editor.set_entry(text, servers.table, name, entry))


def _set_hooks(plan: Plan, connection: Connection) -> Plan:
    match connection.agent.hooks:
        case Plugin() as plugin:
            plan.edit(hook_paths(connection)[0], lambda _: _plugin_text(connection, plugin))
        case Hooks() as hooks:
            chosen, *others = hook_paths(connection)
            for other in others:
                # Hooks in two files would run twice.
                remove_hooks(plan, connection, hooks, other)
            set_hooks(plan, connection, hooks, chosen)
    return plan


def _plugin_text(connection: Connection, plugin: Plugin) -> str:
    """Return the agent's plugin with the commands of this butler."""
    template = files("butlers.connect").joinpath("plugins", plugin.template).read_text("utf-8")
    commands = {hook: hook_command(connection, hook) for hook in _PLUGIN_HOOKS}
    text = template.replace("BUTLER_NAME", connection.config.butler.name)
    return text.replace('"COMMANDS"', json.dumps(commands, ensure_ascii=False, indent=2))
