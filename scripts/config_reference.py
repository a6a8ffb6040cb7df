"""Generator of docs/reference/config.md from the models that validate butler.toml."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from butlers.config import ButlerConfig
from butlers.config_types import Cron
from butlers.environment import LOG_FORMATS, LOG_LEVELS
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.toml_diagnostics import table_model_of

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"

INTRO = """\
# Configuration

A butler is a folder with a `butler.toml`. `butlers init DIR` writes one; only `name` is required in it.
The butler reads the file when it starts. It does not start with an unknown key, a wrong type or an invalid value: it
reports all of them at once, each with its key, its line and the allowed values.

This page is generated from the models that validate the file by `python scripts/config_reference.py`.
"""

LEVELS, FORMATS = (" · ".join(f"`{value}`" for value in values) for values in (LOG_LEVELS, LOG_FORMATS))
VARIABLES = f"""\
## Environment variables

Settings of the machine instead of the butler's folder. A blank value counts as unset.

| variable | allowed | default | meaning |
|---|---|---|---|
| `BUTLERS_HOME` | a folder | `~/.local/share/butlers` | The embedded server, models, sockets and outbox of hooks. |
| `BUTLERS_DATABASE_URL` | `postgresql://…` | | The address of an external PostgreSQL, with the application's role. |
| `BUTLERS_ADMIN_DATABASE_URL` | `postgresql://…` | | The same with the owner's role, for migrations. |
| `BUTLERS_LOG` | {LEVELS} | `info` | The log level. |
| `BUTLERS_LOG_FORMAT` | {FORMATS} | `console` | The format of log lines. |
"""

CRON = get_args(Cron)[1]
TYPE_NAMES: dict[object, str] = {bool: "`true` · `false`", int: "whole number", float: "number", str: "text"}


def render() -> str:
    """The page."""
    tables = [*sections("butler", ButlerConfig), *sections("modules.memory", MemoryModuleConfig)]
    return "\n".join([INTRO, *tables, VARIABLES])


def sections(name: str, model: type[BaseModel], *, repeated: bool = False) -> Iterator[str]:
    """The section of a table of butler.toml, then the sections of the tables inside it."""
    rows = [row(model, key, field) for key, field in model.model_fields.items() if not inner_table(field)]
    heading = f"[[{name}]]" if repeated else f"[{name}]"
    summary = (model.__doc__ or "").split(": ", 1)[-1]
    head = ["| key | allowed | default | meaning |", "|---|---|---|---|"]
    yield "\n".join([f"## `{heading}`", "", f"{summary[0].upper()}{summary[1:]}", "", *head, *rows, ""])
    for key, field in model.model_fields.items():
        if table := inner_table(field):
            yield from sections(f"{name}.{key}", table, repeated=get_origin(field.annotation) is list)


def inner_table(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a key that is a table; None for other keys."""
    return table_model_of(field.annotation)


def row(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    """The table row of one key."""
    description = (field.description or "").replace("|", "\\|")
    return f"| `{key}` | {allowed(field)} | {default(model, key, field)} | {description} |"


def allowed(field: FieldInfo) -> str:
    """The allowed values, with bounds."""
    kind = field.annotation
    if type(None) in get_args(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " · ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is list:
        return "list of text"
    if CRON in field.metadata:
        return "cron expression"
    return ", ".join([TYPE_NAMES.get(kind, "text"), *bounds(field)])


def bounds(field: FieldInfo) -> Iterator[str]:
    """`at least 1`, `at most 200`."""
    for attribute, text in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        for rule in field.metadata:
            if hasattr(rule, attribute):
                yield f"{text} {getattr(rule, attribute)}"


def default(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    """The default of the key as TOML; empty where there is none."""
    if field.is_required():
        return "required"
    has_defaults = not any(other.is_required() for other in model.model_fields.values())
    value = getattr(model(), key) if has_defaults else field.get_default(call_default_factory=True)
    if value is None:
        return ""
    return f"`{toml(value)}`"


def toml(value: object) -> str:
    """The value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(toml(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
