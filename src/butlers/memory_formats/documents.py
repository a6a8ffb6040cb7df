"""JSON and Markdown files of a source, each value or text with its place, and problems where one can't be read."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

from butlers.memory_formats.json_items import InvalidJson, JsonItem, read_json_items, read_lines
from butlers.memory_formats.records import Problem
from butlers.memory_formats.source import Source, SourceFile
from butlers.memory_formats.values import split_front_matter

_BROKEN_ARCHIVE = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value of a JSON file: of an outer array, or of an array under a key of an outer object, one item."""

    file: str
    place: str
    key: str
    is_item: bool
    size: int
    value: Any


@dataclass(frozen=True, slots=True)
class MarkdownText:
    """A Markdown file, with its front matter apart from its body."""

    file: SourceFile
    head: Mapping[str, Any]
    body: str


def json_values(
    source: Source, *patterns: str, is_lines: bool = False, first: str = ""
) -> Iterator[JsonValue | Problem]:
    """Yield every value of the files with these names, those with `first` in the name first.

    With `is_lines` each line is a value.
    """
    for file in sorted(source.files(*patterns), key=lambda each: first not in each.name):
        if problem := file.problem():
            yield problem
            continue
        try:
            with file.open() as document:
                for item in read_lines(document) if is_lines else read_json_items(document):
                    yield _parse(file.name, item)
        except InvalidJson as error:
            yield Problem(file.name, str(error))
        except _BROKEN_ARCHIVE:
            yield Problem(file.name, "it can't be unpacked")


def _parse(file: str, item: JsonItem) -> JsonValue | Problem:
    place = item.place if item.key == "line" else f"{file} {item.place}"
    try:
        return JsonValue(file, place, item.key, item.number > 0, len(item.raw), item.parse())
    except InvalidJson as error:
        return Problem(place, str(error))


def markdown_texts(source: Source) -> Iterator[MarkdownText | Problem]:
    """Yield every Markdown file."""
    for file in source.files("*.md"):
        if problem := file.problem():
            yield problem
            continue
        try:
            head, body = split_front_matter(file.read_text())
        except ValueError as error:
            yield Problem(file.name, str(error))
        except _BROKEN_ARCHIVE:
            yield Problem(file.name, "it can't be unpacked")
        else:
            yield MarkdownText(file, head, body)
