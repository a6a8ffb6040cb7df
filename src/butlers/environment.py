"""The environment variables that butlers read."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.config_types import validate_database_url
from butlers.errors import ConfigurationFault
from butlers.toml_diagnostics import display_value

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("console", "json")


@dataclass(frozen=True, slots=True)
class Environment:
    """The settings of the machine, as opposed to those of the butler's folder."""

    home: Path
    database_url: str | None
    admin_database_url: str | None
    log_level: str
    log_format: str


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Return the environment; raise one `ConfigurationFault` that lists every bad variable. Blank means unset."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, (field, default, check) in _VARIABLES.items():
        value = variables.get(name, "").strip() or default
        try:
            values[field] = None if value is None else check(value)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ConfigurationFault("\n".join(problems))
    return Environment(**values)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in allowed:
            raise ValueError(f"{display_value(value)} is not one of {', '.join(allowed)}")
        return value.lower()

    return check


def _folder(value: str) -> Path:
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError:
        raise ValueError(f"{display_value(value)} names no user's home; write the whole path") from None


_VARIABLES: Mapping[str, tuple[str, str | None, Callable[[str], Any]]] = {
    "BUTLERS_HOME": ("home", "~/.local/share/butlers", _folder),
    "BUTLERS_DATABASE_URL": ("database_url", None, validate_database_url),
    "BUTLERS_ADMIN_DATABASE_URL": ("admin_database_url", None, validate_database_url),
    "BUTLERS_LOG": ("log_level", "info", _one_of(*LOG_LEVELS)),
    "BUTLERS_LOG_FORMAT": ("log_format", "console", _one_of(*LOG_FORMATS)),
}
