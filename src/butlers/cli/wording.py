"""Words of the command line for names of tools and of their arguments in a message."""

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from inspect import signature
from typing import Any, get_type_hints

from typer.models import ArgumentInfo

# Not in the middle of a path or of a configuration key.
_NAME = re.compile(r"(?<![\w./-])[a-z]+(?:_[a-z]+)+(?![\w/-]|\.\w)")
_TOOL = re.compile(r"(memory|entity)_(?!id$|ids$|type$)([a-z_]+)")

shown_names: ContextVar[Mapping[str, str]] = ContextVar("shown_names")
"""How the running command shows its arguments: `--entity-type`, or ID for a positional one."""


def names_of(function: Callable[..., Any]) -> dict[str, str]:
    """Return how a command shows each of its arguments."""
    hints = get_type_hints(function, include_extras=True)
    annotations = {name: hints.get(name, each.annotation) for name, each in signature(function).parameters.items()}
    return {name: _shown(name, getattr(each, "__metadata__", ())) for name, each in annotations.items()}


def _shown(name: str, metadata: tuple[Any, ...]) -> str:
    for each in metadata:
        if isinstance(each, ArgumentInfo):
            return str(each.metavar or name.upper()).strip("[].")
        # In an annotation, Typer takes the first name of an option for its default.
        words = (getattr(each, "default", None), *(getattr(each, "param_decls", None) or ()))
        if declared := [word for word in words if isinstance(word, str) and word.startswith("--")]:
            return str(declared[0])
    return "--" + name.replace("_", "-")


def option_name(name: str) -> str:
    """Return how the running command shows an argument of its tool."""
    shown = shown_names.get({})
    return shown.get(name) or shown.get(name.removesuffix("_id")) or name.replace("_", "-")


def in_words_of_the_command(text: str) -> str:
    """Return a message with commands for tools, and options for arguments of the running command."""
    return _NAME.sub(lambda match: _word(match[0]), text)


def _word(name: str) -> str:
    shown = option_name(name)
    if shown != name.replace("_", "-"):
        return shown
    tool = _TOOL.fullmatch(name)
    if tool is None:
        return name
    group = "memory entity" if tool[1] == "entity" else "memory"
    return f"`butlers {group} {tool[2].replace('_', '-')}`"
