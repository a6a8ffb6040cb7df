"""What the machine says through environment variables."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.config_types import database_url
from butlers.errors import ConfigurationFault
from butlers.toml_diagnostics import display_value

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("console", "json")


@dataclass(frozen=True, slots=True)
class Environment:
    """What the machine says, as opposed to the butler's folder."""

    home: Path
    database_url: str | None
    admin_database_url: str | None
    log_level: str
    log_format: str


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """The variables butlers read; a blank one counts as unset, and every bad one is named in one fault."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, (field, default, check) in _VARIABLES.items():
        said = variables.get(name, "").strip() or default
        try:
            values[field] = None if said is None else check(said)
        except (ValueError, RuntimeError) as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ConfigurationFault("\n".join(problems))
    return Environment(**values)


def _folder(path: str) -> Path:
    return Path(path).expanduser().absolute()


def _one_of(*allowed: str) -> Callable[[str], str]:
    def check(word: str) -> str:
        if word.lower() not in allowed:
            raise ValueError(f"{display_value(word)} is not one of {', '.join(allowed)}")
        return word.lower()

    return check


_VARIABLES: Mapping[str, tuple[str, str | None, Callable[[str], Any]]] = {
    "BUTLERS_HOME": ("home", "~/.local/share/butlers", _folder),
    "BUTLERS_DATABASE_URL": ("database_url", None, database_url),
    "BUTLERS_ADMIN_DATABASE_URL": ("admin_database_url", None, database_url),
    "BUTLERS_LOG": ("log_level", "info", _one_of(*LOG_LEVELS)),
    "BUTLERS_LOG_FORMAT": ("log_format", "console", _one_of(*LOG_FORMATS)),
}
