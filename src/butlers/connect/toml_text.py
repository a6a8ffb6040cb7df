"""Edits of TOML text: one table is added at the end or removed, and every other byte stays."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Keys = tuple[str, ...]

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|'
    r"'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'|#[^\n]*|\n|[\[\]{}]|[^\s]",
    re.DOTALL,
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"\x7f")


class TomlLayoutError(ValueError):
    """The table is there in a form that can't be edited, such as an inline table."""


def value_of(text: str | None) -> dict[str, Any]:
    """Return the value of a text. Raises `tomllib.TOMLDecodeError`."""
    # The parser takes only line feeds and pairs of both characters.
    return tomllib.loads((text or "").removeprefix("\ufeff"))


def set_table(text: str | None, keys: Keys, table: Mapping[str, Any]) -> str:
    """Return the text with this table, at the end if it is new; raise `TomlLayoutError` if it can't be edited."""
    before = value_of(text)
    if _get(before, keys) == table:
        return text or ""
    line_break = "\r\n" if "\r\n" in (text or "") else "\n"
    block = line_break.join(_lines(keys, table))
    after = _append(text, block, line_break) if _get(before, keys) is None else _replace(text or "", keys, block)
    _set(before, keys, dict(table))
    return _checked(after, before)


def remove_table(text: str, keys: Keys) -> str | None:
    """Return the text without the table and what is below it; None if it was created for the table."""
    before = value_of(text)
    if _get(before, keys) is None:
        return text
    sections = [section for section in _sections(text) if section.keys[: len(keys)] == keys]
    after = text
    for section in reversed(sections):
        after = _cut(after, section)
    _delete(before, keys)
    # The file was created for the table if it begins with it.
    is_created = not after and bool(sections) and sections[0].start == 0
    return None if is_created else _checked(after, before)


@dataclass(frozen=True, slots=True)
class _Section:
    """A table of the text: from its header to the end of its last value."""

    keys: Keys
    start: int
    end: int


def _sections(text: str) -> Iterator[_Section]:
    """Yield the tables that have a header."""
    spans: list[tuple[int, int]] = []
    depth, is_line_start = 0, True
    for token in _TOKEN.finditer(text):
        if token[0] == "\n":
            is_line_start = depth == 0
        elif not token[0].startswith("#"):
            start = token.start() if is_line_start and token[0] == "[" else None
            if start is not None:
                spans.append((start, token.end()))
            elif spans:
                spans[-1] = (spans[-1][0], token.end())
            is_line_start = False
            depth += (token[0] in {"[", "{"}) - (token[0] in {"]", "}"})
    for start, end in spans:
        yield _Section(_header_keys(text[start:].partition("\n")[0]), start, end)


def _header_keys(header: str) -> Keys:
    keys: list[str] = []
    value: Any = tomllib.loads(header.strip())
    while value:
        if isinstance(value, list):
            value = value[0]
            continue
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)


def _append(text: str | None, block: str, line_break: str) -> str:
    if text is None:
        return block + line_break
    if not text or text.endswith("\n"):
        return text + line_break + block + line_break
    # Without a line break at the end as before.
    return text + line_break * 2 + block


def _replace(text: str, keys: Keys, block: str) -> str:
    own = [section for section in _sections(text) if section.keys == keys]
    if not own:
        raise TomlLayoutError(".".join(keys))
    return text[: own[0].start] + block + text[own[0].end :]


def _cut(text: str, section: _Section) -> str:
    """Return the text without a section and the blank line before it, as `_append` has added them."""
    before, behind = text[: section.start], text[section.end :]
    if not behind:
        return before.removesuffix("\n").removesuffix("\r").removesuffix("\n").removesuffix("\r")
    behind = re.sub(r"\A[ \t]*\r?\n", "", behind)
    is_behind_blank_line = re.search(r"(?:\n|\A)\r?\n\Z", before)
    return (before.removesuffix("\n").removesuffix("\r") if is_behind_blank_line else before) + behind


def _lines(keys: Keys, table: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{'.'.join(map(_key, keys))}]"
    for key, value in table.items():
        yield f"{_key(key)} = {_render(value)}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _render(key)


def _render(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_render(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_render, value)) + "]"
    # A JSON string is a TOML string if it has no surrogates, and DEL is escaped.
    return _CONTROL.sub(r"\\u007f", json.dumps(value, ensure_ascii=False))


def _get(value: Any, keys: Keys) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _set(value: dict[str, Any], keys: Keys, table: dict[str, Any]) -> None:
    for key in keys[:-1]:
        value = value.setdefault(key, {})
    value[keys[-1]] = table


def _delete(value: dict[str, Any], keys: Keys) -> None:
    """Delete the value, and each table that is then empty."""
    if len(keys) > 1:
        _delete(value[keys[0]], keys[1:])
    if len(keys) == 1 or not value[keys[0]]:
        del value[keys[0]]


def _checked(text: str, expected: dict[str, Any]) -> str:
    """Return the text if it has the expected value; raise `TomlLayoutError` otherwise."""
    try:
        if _without_empty_tables(value_of(text)) == _without_empty_tables(expected):
            return text
    except tomllib.TOMLDecodeError:
        pass
    raise TomlLayoutError("the table has a form that can't be edited")


def _without_empty_tables(value: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in value.items() if each != {}}
