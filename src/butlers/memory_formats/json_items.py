"""Reading of JSON files of any size: one line or one item of an array at a time."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from pydantic_core import from_json

MAX_ITEM_BYTES = 32 * 1024 * 1024
"""A longer line or item is a problem, and is read past without holding it."""
_CHUNK_BYTES = 256 * 1024
_MAX_KEY_CHARACTERS = 100
# A whole string at once, or the start of one that the chunk cuts off.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)
_MEMBER = re.compile(rb'\s*("(?:[^"\\]++|\\.)*+")\s*:', re.DOTALL)
_IN_STRING = re.compile(rb'["\\]')


class InvalidJson(ValueError):
    """JSON that can't be read; its text says why."""


@dataclass(frozen=True, slots=True)
class JsonItem:
    """An item of the outer array, or a value of the outer object; each item of an array there has the array's key."""

    key: str
    number: int
    raw: bytes
    is_too_long: bool = False

    @property
    def place(self) -> str:
        """The place of the item in the file."""
        return f"{self.key} {self.number}" if self.key else f"item {self.number}"

    def parse(self) -> Any:
        """Return the value; raises `InvalidJson`."""
        if self.is_too_long:
            raise InvalidJson(f"it is longer than {MAX_ITEM_BYTES:,} bytes")
        return parse_json(self.raw)


def parse_json(raw: bytes) -> Any:
    """Return the value of a JSON text; raises `InvalidJson`."""
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        # Some programs write half of a surrogate pair, which only this parser takes.
        return json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidJson("it is not UTF-8") from None
    except ValueError:
        raise InvalidJson("it is not valid JSON; the file may be cut off") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def read_lines(file: BinaryIO) -> Iterator[JsonItem]:
    """Yield every line that is not blank."""
    number = 0
    while raw := file.readline(MAX_ITEM_BYTES + 1):
        number += 1
        is_too_long = len(raw) > MAX_ITEM_BYTES
        while is_too_long and not raw.endswith(b"\n") and (raw := file.readline(_CHUNK_BYTES)):
            pass
        if is_too_long or raw.strip():
            yield JsonItem("line", number, b"" if is_too_long else raw, is_too_long)


def read_json_items(file: BinaryIO) -> Iterator[JsonItem]:
    """Yield the items of one JSON document; raises `InvalidJson` if it is no array and no object, or is cut off."""
    scanner = _Scanner()
    while chunk := file.read(_CHUNK_BYTES):
        yield from scanner.feed(chunk)
    scanner.finish()


class _Scanner:
    """Finds the items of a document by its brackets and strings, without recursion and with one item in memory."""

    def __init__(self) -> None:
        self._depth, self._item_depth = 0, 1
        """How many brackets are open, and how many are open between two items."""
        self._outer = b""
        self._key, self._number = "", 0
        self._item = bytearray()
        self._in_string = self._is_escaped = self._is_too_long = self._is_complete = False

    def feed(self, chunk: bytes) -> Iterator[JsonItem]:
        """Yield the items that end in this chunk."""
        start = position = 0
        while position < len(chunk):
            if self._in_string:
                position = self._skip_string(chunk, position)
                continue
            token = _TOKEN.search(chunk, position)
            if token is None:
                break
            position = token.end()
            mark = token.group()
            if mark == b'"':
                self._in_string = True
            elif len(mark) == 1 and self._is_boundary(mark):
                self._collect(chunk[start : token.start()])
                start = position
                yield from self._cross(mark)
            elif len(mark) == 1 and mark != b",":
                self._depth += 1 if mark in b"[{" else -1
        self._collect(chunk[start:])

    def finish(self) -> None:
        """Raise `InvalidJson` unless the document is complete."""
        if not self._is_complete or self._item.strip():
            raise InvalidJson("it is not valid JSON; the file may be cut off")

    def _skip_string(self, chunk: bytes, position: int) -> int:
        """Return the position after the string, or the end of the chunk if it goes on."""
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        mark = _IN_STRING.search(chunk, position)
        if mark is None:
            return len(chunk)
        self._in_string, self._is_escaped = mark.group() != b'"', mark.group() != b'"'
        return mark.end()

    def _is_boundary(self, mark: bytes) -> bool:
        """Whether an item begins or ends here."""
        if mark == b"[":
            return self._depth == 0 or (self._depth == 1 and self._outer == b"{")
        return self._depth == (0 if mark == b"{" else self._item_depth)

    def _cross(self, mark: bytes) -> Iterator[JsonItem]:
        """Yield the item that ends at a mark, and go into or out of an array or object."""
        if mark in b"[{":
            self._enter(mark)
            return
        yield from self._take_item()
        if mark == b",":
            return
        if (mark == b"]") != (self._item_depth == 2 or self._outer == b"["):
            raise InvalidJson("its brackets do not match")
        self._depth -= 1
        self._is_complete = self._depth == 0
        self._item_depth, self._key = 1, ""

    def _enter(self, mark: bytes) -> None:
        before = bytes(self._item)
        self._item.clear()
        if self._depth == 0:
            if self._is_complete or before.strip():
                raise InvalidJson("it is no array and no object, or has more than one")
            self._outer = mark
        else:
            self._key, rest = _split_member(before)
            if rest.strip():
                raise InvalidJson("a comma is missing")
            self._item_depth, self._number = 2, 0
        self._depth += 1

    def _take_item(self) -> Iterator[JsonItem]:
        raw, is_too_long = bytes(self._item), self._is_too_long
        self._item.clear()
        self._is_too_long = False
        if not raw.strip() and not is_too_long:
            return
        self._number += 1
        if self._outer == b"[" or self._item_depth == 2:
            yield JsonItem(self._key, self._number, raw, is_too_long)
        elif is_too_long:
            yield JsonItem("member", self._number, b"", is_too_long)
        else:
            key, value = _split_member(raw)
            yield JsonItem(key, 0, value)

    def _collect(self, part: bytes) -> None:
        if self._is_too_long:
            return
        if len(self._item) + len(part) > MAX_ITEM_BYTES:
            self._is_too_long = True
            self._item.clear()
        else:
            self._item += part


def _split_member(raw: bytes) -> tuple[str, bytes]:
    """Return the key and the value of a member of an object."""
    member = _MEMBER.match(raw)
    if member is None:
        raise InvalidJson("a key is missing")
    return str(parse_json(member[1]))[:_MAX_KEY_CHARACTERS], raw[member.end() :]
