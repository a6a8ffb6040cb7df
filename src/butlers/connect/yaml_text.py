"""Edits of YAML text: one entry of a mapping is added or removed, and every other byte stays."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

_TABLE_MARK, _FILE_MARK = "  # added by butlers connect", "  # created by butlers connect"
_STEP = 2


class YamlLayoutError(ValueError):
    """The file is no YAML mapping, or the entry is there in a form that can't be edited."""


def value_of(text: str | None) -> dict[str, Any]:
    """Return the value of a text; raise `YamlLayoutError` unless it is a mapping."""
    try:
        value = yaml.safe_load(text or "")
    except (yaml.YAMLError, RecursionError, ValueError):
        value = text
    if value is not None and not isinstance(value, dict):
        raise YamlLayoutError("not a YAML mapping")
    return value or {}


def set_entry(text: str | None, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text with this entry in the table, which is created if it is missing."""
    value = value_of(text)
    entries = value.get(table) or {}
    if isinstance(entries, dict) and entries.get(name) == entry:
        return text or ""
    left = _remove(text, table, name, keep_table=True) if text and name in entries else text
    return _checked(_insert(left, table, name, entry), {**value, table: {**entries, name: dict(entry)}})


def remove_entry(text: str, table: str, name: str) -> str | None:
    """Return the text without the entry, and without the table if it was created for it; None if nothing is left."""
    value = value_of(text)
    entries = value.get(table)
    if not isinstance(entries, dict) or name not in entries:
        return text
    left = _remove(text, table, name, keep_table=False)
    others = {key: each for key, each in entries.items() if key != name}
    expected = {**value, table: others}
    return None if left is None else _checked(left, expected)


def _insert(text: str | None, table: str, name: str, entry: Mapping[str, Any]) -> str:
    line_break = "\r\n" if "\r\n" in (text or "") else "\n"
    pair = _find(text, table)
    if text is None or pair is None:
        header = table + ":" + (_FILE_MARK if text is None else _TABLE_MARK)
        return _append(text, [header, *_lines(name, entry, _STEP)], line_break)
    key, node = pair
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        start = node.start_mark.index + 1
        added = f"{json.dumps(name)}: {json.dumps(entry)}" + ("," if node.value else "")
        return text[:start] + added + text[start:]
    if isinstance(node, yaml.MappingNode):
        first = node.value[0][0].start_mark
        start, column = first.index - first.column, first.column
    elif node.start_mark.index == node.end_mark.index:
        start, column = _line_end(text, key.end_mark.index), key.start_mark.column + _STEP
    else:
        raise YamlLayoutError(f"{table} is no mapping")
    lines = _lines(name, entry, column)
    if start == len(text) and not text.endswith("\n"):
        return _append(text, lines, line_break)
    return text[:start] + "".join(line + line_break for line in lines) + text[start:]


def _append(text: str | None, lines: list[str], line_break: str) -> str:
    block = line_break.join(lines)
    if not text or text.endswith("\n"):
        return (text or "") + block + line_break
    # Without a line break at the end as before.
    return text + line_break + block


def _remove(text: str | None, table: str, name: str, *, keep_table: bool) -> str | None:
    pair = _find(text, table)
    if not text or not pair or not isinstance(pair[1], yaml.MappingNode):
        return text
    key, node = pair
    index = next(index for index, (each, _) in enumerate(node.value) if each.value == name)
    start, end = node.value[index][0].start_mark, _last_leaf(node.value[index][1]).end_mark.index
    if node.flow_style:
        comma = text.find(",", end) if index + 1 < len(node.value) else -1
        return text[: start.index] + text[comma + 1 if comma >= 0 else end :]
    first = start.index - start.column
    if len(node.value) == 1 and not keep_table:
        header = key.start_mark.index - key.start_mark.column
        is_own = any(mark in text[header:first] for mark in (_TABLE_MARK, _FILE_MARK))
        left = _cut(text, header if is_own else first, _line_end(text, end))
        return None if not left and _FILE_MARK in text[:first] else left
    return _cut(text, first, _line_end(text, end))


def _cut(text: str, start: int, end: int) -> str:
    """Return the text without these lines; without a line break at the end if it had none."""
    left = text[:start] + text[end:]
    return left if text.endswith("\n") or end < len(text) else left.removesuffix("\n").removesuffix("\r")


def _find(text: str | None, table: str) -> tuple[Any, Any] | None:
    """Return the nodes of the table's key and value."""
    root = yaml.compose(text or "", Loader=yaml.SafeLoader)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == table), None)


def _last_leaf(node: Any) -> Any:
    """Return the node whose end is the end of the text; that of a block is behind the blank lines after it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return node


def _line_end(text: str, position: int) -> int:
    """Return the start of the next line."""
    line_break = text.find("\n", position)
    return len(text) if line_break < 0 else line_break + 1


def _lines(name: str, entry: Mapping[str, Any], column: int) -> list[str]:
    text = yaml.safe_dump({name: dict(entry)}, sort_keys=False, allow_unicode=True, width=10_000)
    return [" " * column + line for line in text.splitlines()]


def _checked(text: str, expected: dict[str, Any]) -> str:
    """Return the text if it has the expected value; raise `YamlLayoutError` otherwise."""
    value = value_of(text)
    if {key: each or None for key, each in value.items()} != {
        key: each or None for key, each in expected.items() if each or key in value
    }:
        raise YamlLayoutError("the entry has a form that can't be edited")
    return text
