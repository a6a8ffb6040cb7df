"""Edits of a JSON file with hooks: one butler's hooks are added, brought up to date or removed, all others stay."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from butlers.agents import Hooks
from butlers.connect import json_text
from butlers.connect.editors import EDITORS, FIX, faults_of, table_of
from butlers.connect.entry import Connection, hook_handler, is_own_command
from butlers.connect.file_change import Plan
from butlers.errors import ConfigurationFault

Change = Callable[[Any], Any]


def set_hooks(plan: Plan, connection: Connection, hooks: Hooks, path: Path) -> None:
    """Write each hook over its old form, or behind the other hooks of its event."""
    there = hooks_in(plan, path)
    for event in reversed([event for event in there if event not in hooks.events]):
        _change_event(plan, path, event, hooks, lambda element: _without_own(connection, element))
    for event, hook in hooks.events.items():
        handler = hook_handler(connection, hook, hooks.handler)
        if any(_is_own(connection, element) for element in there.get(event, [])):
            _change_event(plan, path, event, hooks, _Replacement(connection, handler))
        else:
            _append(plan, path, event, hooks, {"hooks": [handler]} if hooks.is_grouped else handler)


def remove_hooks(plan: Plan, connection: Connection, hooks: Hooks, path: Path) -> None:
    """Remove the butler's hooks of every event, the last one first: it came last."""
    for event in reversed(hooks_in(plan, path)):
        _change_event(plan, path, event, hooks, lambda element: _without_own(connection, element))


def has_own_hooks(connection: Connection, plan: Plan, path: Path) -> bool:
    """Whether a file has hooks of this butler, in any form."""
    return any(_is_own(connection, element) for elements in hooks_in(plan, path).values() for element in elements)


def hooks_in(plan: Plan, path: Path) -> dict[str, list[Any]]:
    """Return the hooks of each event; raise `ConfigurationFault` if they are not lists."""
    table = table_of(EDITORS["json"], path, plan.text(path), "hooks")
    for event, elements in table.items():
        if not isinstance(elements, list):
            raise ConfigurationFault(f"{path}: hooks.{event} is not a list", hint=FIX)
    return table


def _append(plan: Plan, path: Path, event: str, hooks: Hooks, element: Mapping[str, Any]) -> None:
    with faults_of(path):
        plan.edit(path, lambda text: json_text.append_element(text, ("hooks", event), element, hooks.defaults))


def _change_event(plan: Plan, path: Path, event: str, hooks: Hooks, change: Change) -> None:
    with faults_of(path):
        plan.edit(
            path, lambda text: text and json_text.change_elements(text, ("hooks", event), change, hooks.defaults)
        )


class _Replacement:
    """Puts the new form of a hook in the place of the old one, and removes any further one."""

    def __init__(self, connection: Connection, handler: Mapping[str, Any]) -> None:
        self.connection, self.handler, self.is_done = connection, handler, False

    def __call__(self, element: Any) -> Any:
        if not _is_own(self.connection, element):
            return element
        if self.is_done:
            return _without_own(self.connection, element)
        self.is_done = True
        if not _is_group(element):
            return self.handler
        changed = [self.handler if _is_own_handler(self.connection, each) else each for each in element["hooks"]]
        return {**element, "hooks": changed}


def _is_own(connection: Connection, element: Any) -> bool:
    handlers = element["hooks"] if _is_group(element) else [element]
    return any(_is_own_handler(connection, handler) for handler in handlers)


def _without_own(connection: Connection, element: Any) -> Any:
    """Return a handler, or a group of handlers, without those of the butler; None if nothing is left."""
    if not _is_own(connection, element):
        return element
    others = (
        [each for each in element["hooks"] if not _is_own_handler(connection, each)] if _is_group(element) else []
    )
    return {**element, "hooks": others} if others else None


def _is_group(element: Any) -> bool:
    return isinstance(element, Mapping) and isinstance(element.get("hooks"), list)


def _is_own_handler(connection: Connection, handler: Any) -> bool:
    return isinstance(handler, Mapping) and is_own_command(connection, handler.get("command"))
