"""Edits of JSON text that change nothing else: comments, order and layout stay, and a removal undoes an addition.

A new item goes to the end of its object or array, in the layout that is there. The layout also says what was created
for it: a container that was there before, and empty, keeps a blank line at its start or end while it has items.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from butlers.connect.json_syntax import Item, JsonSyntaxError, Node, parse

Keys = tuple[str, ...]

_NO_DEFAULTS: Mapping[str, Any] = {}
_DEFAULT_UNIT = "  "


def value_of(text: str | None) -> Any:
    """Return the value of a text; None without one. Raises `JsonSyntaxError`."""
    root = parse(text or "")
    return root.value if root else None


def set_member(text: str | None, keys: Keys, value: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> str:
    """Return the text with this value under the keys; objects on the way are created, other members stay.

    Without a text it is that of a new file, which also has the defaults.
    """
    item = _find(text, keys)
    if item is not None:
        return text if text and item.value.value == value else _replace(text or "", item.value, value)
    return _insert(text, keys, value, defaults)


def append_element(text: str | None, keys: Keys, value: Any, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> str:
    """Return the text with this value at the end of the array under the keys."""
    item = _find(text, keys)
    if item is not None:
        return _Container(text or "", item.value).insert(None, value)
    return _insert(text, keys, [value], defaults)


def remove_member(text: str, keys: Keys, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> str | None:
    """Return the text without the member and the objects that were created for it; None if nothing is left."""
    trail = _trail(text, keys)
    return _remove(text, trail, defaults) if trail else text


def change_elements(
    text: str, keys: Keys, change: Callable[[Any], Any], defaults: Mapping[str, Any] = _NO_DEFAULTS
) -> str | None:
    """Return the text with each element of the array changed; None removes one. None if nothing is left."""
    trail = _trail(text, keys)
    count = len(trail[-1][1].value.items) if trail and trail[-1][1].value.opening == "[" else 0
    left: str | None = text
    # From the last to the first: the marks of a container that was there are at its first element.
    for index in reversed(range(count)):
        trail = _trail(left or "", keys)
        array = trail[-1][1].value
        element = array.items[index]
        old, new = element.value.value, change(element.value.value)
        if new is None:
            left = _remove(left or "", [*trail, (array, element)], defaults)
        elif new != old:
            left = _replace(left or "", element.value, new)
    return left


def _trail(text: str | None, keys: Keys) -> list[tuple[Node, Item]]:
    """Return each object on the way with its member; empty if one is missing."""
    trail: list[tuple[Node, Item]] = []
    node = parse(text or "")
    for key in keys:
        item = node.member(key) if node else None
        if node is None or item is None:
            return []
        trail.append((node, item))
        node = item.value
    return trail


def _find(text: str | None, keys: Keys) -> Item | None:
    trail = _trail(text, keys)
    return trail[-1][1] if trail else None


def _insert(text: str | None, keys: Keys, value: Any, defaults: Mapping[str, Any]) -> str:
    root = parse(text or "")
    if text is None or root is None:
        return _new_root(text, {**_nest(keys, value), **defaults})
    node = root
    for depth, key in enumerate(keys):
        item = node.member(key)
        if item is None:
            return _Container(text, node).insert(key, _nest(keys[depth + 1 :], value))
        node = item.value
    return text


def _nest(keys: Keys, value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _new_root(text: str | None, value: Any) -> str:
    """Return a new file, or a file that was empty with its first value, which begins with two blank lines."""
    rendered = json.dumps(value, indent=_DEFAULT_UNIT, ensure_ascii=False)
    if text is None:
        return f"{rendered}\n"
    blank = len(text) - len(text.lstrip("\ufeff"))
    return f"{text[:blank]}{{\n\n{rendered[1:]}{text[blank:]}"


def _replace(text: str, node: Node, value: Any) -> str:
    is_inline = node.is_container and "\n" not in text[node.start : node.end]
    rendered = _render(value, _Container(text, node), _indentation(text, node.start), is_inline=is_inline)
    return text[: node.start] + rendered + text[node.end :]


def _remove(text: str, trail: list[tuple[Node, Item]], defaults: Mapping[str, Any]) -> str | None:
    """Remove the last item of the trail, and each container before it that was created for it."""
    root = trail[0][0]
    has_comments = bool((text[: root.start] + text[root.end :]).strip("\ufeff \t\r\n"))
    for node, item in reversed(trail):
        container = _Container(text, node)
        if node is root and not has_comments and container.is_new_root(item, defaults):
            return container.without_root(item)
        if node is root or not container.is_created(item):
            return container.remove(item)
    return text


class _Container:
    """An object or array of a text, with its layout."""

    def __init__(self, text: str, node: Node) -> None:
        self.text, self.node = text, node
        self.line_break = "\r\n" if "\r\n" in text else "\n"
        self.indentation = _indentation(text, node.start)

    @property
    def unit(self) -> str:
        """The indentation of one level."""
        root = parse(self.text)
        first = root.items[0].start if root and root.items else 0
        return _indentation(self.text, first) if "\n" in self.text[:first] else _DEFAULT_UNIT

    def insert(self, key: str | None, value: Any) -> str:
        """Return the text with one more item."""
        return self._append(key, value) if self.node.items else self._fill(key, value)

    def _append(self, key: str | None, value: Any) -> str:
        text, last = self.text, self.node.items[-1]
        start = last.value.end if last.comma is None else last.comma + 1
        # Behind the comments of the last item.
        end = start + len(text[start : self.node.end - 1].rstrip())
        is_inline = "\n" not in text[self.node.start : self.node.end]
        indentation = _indentation(text, last.start)
        item = _labelled(key, _render(value, self, indentation, is_inline=is_inline))
        added = (" " if is_inline else self.line_break + indentation) + item
        if last.comma is None:
            return text[:start] + "," + text[start:end] + added + text[end:]
        return text[:end] + added + "," + text[end:]

    def _fill(self, key: str | None, value: Any) -> str:
        start, line_break = self.node.start + 1, self.line_break
        blank = self.text[start : self.node.end - 1]
        indentation = self.indentation + self.unit
        item = indentation + _labelled(key, _render(value, self, indentation, is_inline=False))
        if "\n" in blank or blank.strip():
            added = line_break + item + line_break
        else:
            added = line_break * 2 + item + line_break + self.indentation
        return self.text[:start] + added + self.text[start:]

    def is_created(self, item: Item) -> bool:
        """Whether the container has this item only and was created for it."""
        before, behind = self._around(item)
        is_marked = before.count("\n") > 1 or behind.count("\n") > 1 or before.strip() or behind.strip()
        return len(self.node.items) == 1 and not is_marked

    def is_new_root(self, item: Item, defaults: Mapping[str, Any]) -> bool:
        """Whether the file was created for this item: it has no other members but the defaults behind it."""
        others = {other.key: other.value.value for other in self.node.items if other is not item}
        if others != defaults or self.node.items[0] is not item:
            return False
        return bool(defaults) or self._is_in_blank_file(item) or self.is_created(item)

    def _is_in_blank_file(self, item: Item) -> bool:
        return self.text[self.node.start + 1 : item.start].count("\n") > 2

    def without_root(self, item: Item) -> str | None:
        """Return what the file contained before; None if there was none."""
        return self.text[: self.node.start] + self.text[self.node.end :] if self._is_in_blank_file(item) else None

    def remove(self, item: Item) -> str:
        """Return the text without the item."""
        text, index = self.text, self.node.items.index(item)
        if len(self.node.items) == 1:
            return self._empty(item)
        start, end = len(text[: item.start].rstrip()), item.value.end
        if item.comma is not None:
            return _checked(text[:start] + text[item.comma + 1 :], text[: item.start] + text[item.comma + 1 :])
        comma = self.node.items[index - 1].comma or start
        left = text[:comma] + text[comma + 1 : start]
        return _checked(left + text[end:], left + text[start : item.start] + text[end:])

    def _empty(self, item: Item) -> str:
        text, node = self.text, self.node
        before, behind = self._around(item)
        end = item.value.end if item.comma is None else item.comma + 1
        if before.strip():
            return _checked(text[: node.start + 1] + before.rstrip() + text[end:], text[: item.start] + text[end:])
        if before.count("\n") > 1:
            own = self.line_break + self.indentation
        elif behind.count("\n") > 1 or behind.strip():
            own = self.line_break
        else:
            own = behind
        return text[: node.start + 1] + text[end:].removeprefix(own)

    def _around(self, item: Item) -> tuple[str, str]:
        """Return the text before and behind the only item."""
        end = item.value.end if item.comma is None else item.comma + 1
        return self.text[self.node.start + 1 : item.start], self.text[end : self.node.end - 1]


def _render(value: Any, container: _Container, indentation: str, *, is_inline: bool) -> str:
    if is_inline:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=container.unit, ensure_ascii=False).split("\n")
    return (container.line_break + indentation).join(lines)


def _labelled(key: str | None, rendered: str) -> str:
    return rendered if key is None else f"{json.dumps(key, ensure_ascii=False)}: {rendered}"


def _checked(text: str, otherwise: str) -> str:
    """Return the text; the other one if a line comment now hides the rest of a line."""
    try:
        parse(text)
    except JsonSyntaxError:
        return otherwise
    return text


def _indentation(text: str, position: int) -> str:
    """Return the white space at the start of a line."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]
