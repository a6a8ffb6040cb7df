"""Editors of settings files by format: JSON with comments, TOML and YAML."""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from butlers.agents import Format
from butlers.connect import json_text, toml_text, yaml_text
from butlers.connect.json_syntax import JsonSyntaxError, JsonTooDeep
from butlers.connect.toml_text import TomlLayoutError
from butlers.connect.yaml_text import YamlLayoutError
from butlers.errors import ConfigurationFault

Json = dict[str, Any]
FIX = "Fix or delete it, then connect again."
_BY_HAND = "Remove the entry by hand, then connect again."


class Editor(Protocol):
    """Edits of one format. A text is None where there is no file."""

    def read(self, text: str | None) -> Json:
        """Return the value of a file."""

    def set_entry(self, text: str | None, table: str, name: str, entry: Json) -> str:
        """Return the text with this entry in the table."""

    def remove_entry(self, text: str | None, table: str, name: str) -> str | None:
        """Return the text without the entry."""


class JsonEditor:
    """Edits of JSON with comments."""

    def read(self, text: str | None) -> Json:
        """Return the value of a file."""
        value = json_text.value_of(text)
        if value is not None and not isinstance(value, dict):
            raise JsonSyntaxError("not an object")
        return value or {}

    def set_entry(self, text: str | None, table: str, name: str, entry: Json) -> str:
        """Return the text with this entry in the table."""
        return json_text.set_member(text, (table, name), entry)

    def remove_entry(self, text: str | None, table: str, name: str) -> str | None:
        """Return the text without the entry."""
        return None if text is None else json_text.remove_member(text, (table, name))


class TomlEditor:
    """Edits of TOML."""

    def read(self, text: str | None) -> Json:
        """Return the value of a file."""
        return toml_text.value_of(text)

    def set_entry(self, text: str | None, table: str, name: str, entry: Json) -> str:
        """Return the text with this entry in the table."""
        return toml_text.set_table(text, (table, name), entry)

    def remove_entry(self, text: str | None, table: str, name: str) -> str | None:
        """Return the text without the entry."""
        return None if text is None else toml_text.remove_table(text, (table, name))


class YamlEditor:
    """Edits of YAML."""

    def read(self, text: str | None) -> Json:
        """Return the value of a file."""
        return yaml_text.value_of(text)

    def set_entry(self, text: str | None, table: str, name: str, entry: Json) -> str:
        """Return the text with this entry in the table."""
        return yaml_text.set_entry(text, table, name, entry)

    def remove_entry(self, text: str | None, table: str, name: str) -> str | None:
        """Return the text without the entry."""
        return None if text is None else yaml_text.remove_entry(text, table, name)


EDITORS: Mapping[Format, Editor] = {"json": JsonEditor(), "toml": TomlEditor(), "yaml": YamlEditor()}


@contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Raise a `ConfigurationFault` that names the file for a text that can't be read or edited."""
    try:
        yield
    except (JsonTooDeep, RecursionError):
        raise ConfigurationFault(f"{path} is nested too deeply to be a configuration", hint=FIX) from None
    except JsonSyntaxError:
        raise ConfigurationFault(f"{path} is not a JSON object", hint=FIX) from None
    except tomllib.TOMLDecodeError:
        raise ConfigurationFault(f"{path} is not TOML", hint=FIX) from None
    except (TomlLayoutError, YamlLayoutError) as error:
        raise ConfigurationFault(f"{path} can't be edited: {error}", hint=_BY_HAND) from None


def table_of(editor: Editor, path: Path, text: str | None, name: str) -> Json:
    """Return a table of a file; empty if it has none. Raises `ConfigurationFault`."""
    with faults_of(path):
        table = editor.read(text).get(name)
    if table is not None and not isinstance(table, dict):
        raise ConfigurationFault(f"{path}: {name} is not an object", hint=FIX)
    return table or {}
