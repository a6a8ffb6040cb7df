"""The syntax tree of JSON with comments: every value and member with its place in the text."""

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_MAX_DEPTH = 100
_BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])")
_CLOSING = {"{": "}", "[": "]"}


class JsonSyntaxError(ValueError):
    """The text is not JSON, with or without comments."""


class JsonTooDeep(JsonSyntaxError):
    """The text is nested too deeply to be a configuration."""


@dataclass(slots=True)
class Item:
    """A member of an object or an element of an array."""

    start: int
    key: str
    value: "Node"
    comma: int | None = None
    """The place of the comma behind it."""


@dataclass(slots=True)
class Node:
    """A value in the text, from `start` to before `end`; an object or array with its items."""

    start: int
    end: int
    scalar: Any = None
    opening: str = ""
    items: list[Item] = field(default_factory=list)

    @property
    def is_container(self) -> bool:
        """Whether it is an object or an array."""
        return bool(self.opening)

    def member(self, key: str) -> Item | None:
        """Return the member of an object; of several with one key the last, as parsers do."""
        return next((item for item in reversed(self.items) if self.opening == "{" and item.key == key), None)

    @property
    def value(self) -> Any:
        """The value without its place."""
        if self.opening == "{":
            return {item.key: item.value.value for item in self.items}
        if self.opening == "[":
            return [item.value.value for item in self.items]
        return self.scalar


@lru_cache(maxsize=2)
def parse(text: str) -> Node | None:
    """Return the tree of a text, or None if it contains no value; raise `JsonSyntaxError` if it is invalid.

    One edit asks for the tree of its text several times, and some agents have settings of many megabytes.
    """
    parser = _Parser(text)
    start = parser.skip_blank(0)
    if start == len(text):
        return None
    root = parser.read_value(start, 0)
    if parser.skip_blank(root.end) != len(text):
        raise JsonSyntaxError("text after the end")
    return root


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text

    def skip_blank(self, position: int) -> int:
        """Return the place of the next character outside of comments."""
        match = _BLANK.match(self.text, position)
        return match.end() if match else position

    def read_value(self, start: int, depth: int) -> Node:
        character = self.text[start : start + 1]
        if character in _CLOSING:
            return self._read_container(start, depth + 1)
        match = (_STRING if character == '"' else _SCALAR).match(self.text, start)
        if match is None:
            raise JsonSyntaxError(f"no value at {start}")
        return Node(start, match.end(), scalar=_decode(match[0]))

    def _read_container(self, start: int, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise JsonTooDeep("nested too deeply")
        node = Node(start, 0, opening=self.text[start])
        closing = _CLOSING[node.opening]
        position = self.skip_blank(start + 1)
        while self.text[position : position + 1] != closing:
            if node.items and node.items[-1].comma is None:
                raise JsonSyntaxError(f"no comma at {position}")
            item = self._read_item(node.opening, position, depth)
            node.items.append(item)
            position = self.skip_blank(item.value.end)
            if self.text[position : position + 1] == ",":
                item.comma = position
                position = self.skip_blank(position + 1)
        node.end = position + 1
        return node

    def _read_item(self, opening: str, start: int, depth: int) -> Item:
        if opening == "[":
            return Item(start, "", self.read_value(start, depth))
        key = _STRING.match(self.text, start)
        if key is None:
            raise JsonSyntaxError(f"no key at {start}")
        colon = self.skip_blank(key.end())
        if self.text[colon : colon + 1] != ":":
            raise JsonSyntaxError(f"no colon at {colon}")
        return Item(start, _decode(key[0]), self.read_value(self.skip_blank(colon + 1), depth))


def _decode(token: str) -> Any:
    try:
        return json.loads(token)
    except ValueError as error:
        raise JsonSyntaxError(str(error)) from None
