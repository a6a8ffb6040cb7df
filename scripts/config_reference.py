"""Writes docs/reference/config.md from the models that check butler.toml."""

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

A butler is a folder with a `butler.toml`; `butlers init DIR` writes one, and only `name` is required in it.
The butler reads it when it starts. An unknown key, a wrong type or a value that makes no sense stops it,
with the key's name, its line and what is allowed; every problem is reported at once.

This page is made from the models that check the file: `python scripts/config_reference.py` writes it anew.
"""

LEVELS, FORMATS = (" · ".join(f"`{word}`" for word in words) for words in (LOG_LEVELS, LOG_FORMATS))
VARIABLES = f"""\
## Environment variables

What belongs to the machine and not to the butler's folder. A blank value counts as unset.

| variable | allowed | default | what it is for |
|---|---|---|---|
| `BUTLERS_HOME` | a folder | `~/.local/share/butlers` | Where the embedded server and the model cache live. |
| `BUTLERS_DATABASE_URL` | `postgresql://…` | | Use this PostgreSQL, as the application's role. |
| `BUTLERS_ADMIN_DATABASE_URL` | `postgresql://…` | | The owner's address, for migrations. |
| `BUTLERS_LOG` | {LEVELS} | `info` | How much is logged. |
| `BUTLERS_LOG_FORMAT` | {FORMATS} | `console` | How a log line looks. |
"""

CRON = get_args(Cron)[1]
WORDS: dict[object, str] = {bool: "`true` · `false`", int: "whole number", float: "number", str: "text"}


def render() -> str:
    """The whole page."""
    tables = [*sections("butler", ButlerConfig), *sections("modules.memory", MemoryModuleConfig)]
    return "\n".join([INTRO, *tables, VARIABLES])


def sections(name: str, model: type[BaseModel], *, repeated: bool = False) -> Iterator[str]:
    """A table of butler.toml, then the tables inside it."""
    rows = [row(model, key, field) for key, field in model.model_fields.items() if not inner(field)]
    heading = f"[[{name}]]" if repeated else f"[{name}]"
    lead = (model.__doc__ or "").split(": ", 1)[-1]
    head = ["| key | allowed | default | what it is for |", "|---|---|---|---|"]
    yield "\n".join([f"## `{heading}`", "", f"{lead[0].upper()}{lead[1:]}", "", *head, *rows, ""])
    for key, field in model.model_fields.items():
        if table := inner(field):
            yield from sections(f"{name}.{key}", table, repeated=get_origin(field.annotation) is list)


def inner(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a key that is a table of its own."""
    return table_model_of(field.annotation)


def row(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    """One key as a line of its table."""
    description = (field.description or "").replace("|", "\\|")
    return f"| `{key}` | {allowed(field)} | {default(model, key, field)} | {description} |"


def allowed(field: FieldInfo) -> str:
    """What may stand there, bounds included."""
    kind = field.annotation
    if type(None) in get_args(kind):  # `X | None`: left out or X
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        return " · ".join(f"`{word}`" for word in get_args(kind))
    if get_origin(kind) is list:
        return "list of text"
    if CRON in field.metadata:
        return "cron expression"
    return ", ".join([WORDS.get(kind, "text"), *bounds(field)])


def bounds(field: FieldInfo) -> Iterator[str]:
    """`at least 1`, `at most 200`."""
    for attribute, words in (("ge", "at least"), ("gt", "above"), ("le", "at most"), ("lt", "below")):
        for rule in field.metadata:
            if hasattr(rule, attribute):
                yield f"{words} {getattr(rule, attribute)}"


def default(model: type[BaseModel], key: str, field: FieldInfo) -> str:
    """What holds when the key is left out, as it would be written."""
    if field.is_required():
        return "required"
    complete = not any(other.is_required() for other in model.model_fields.values())
    value = getattr(model(), key) if complete else field.get_default(call_default_factory=True)
    if value is None:
        return ""
    return f"`{toml(value)}`"


def toml(value: object) -> str:
    """The value as butler.toml would have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(toml(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
