"""Reader of a text file with a memory on each line, such as the saved memories that ChatGPT shows."""

import re
from collections.abc import Iterator

from butlers.memory_formats.json_items import MAX_ITEM_BYTES
from butlers.memory_formats.json_items import read_lines as read_each_line
from butlers.memory_formats.records import ForeignFact, ForeignRecord, Problem
from butlers.memory_formats.source import Source

_BULLET = re.compile(r"\A(?:[-*+•]|\d+[.)])\s+")


def is_lines(source: Source) -> bool:
    """Return False: any text has lines, so the format has to be named."""
    del source
    return False


def read_lines(source: Source) -> Iterator[ForeignRecord]:
    """Yield a fact about the user for each line that is not blank."""
    for file in source.files("*.txt", "*.md"):
        with file.open() as lines:
            for line in read_each_line(lines):
                try:
                    content = _BULLET.sub("", line.raw.decode().strip())
                except UnicodeDecodeError:
                    yield Problem(line.place, "it is not UTF-8")
                    continue
                if line.is_too_long:
                    yield Problem(line.place, f"it is longer than {MAX_ITEM_BYTES:,} bytes")
                elif content:
                    yield ForeignFact(id=content, subject="user", predicate="note", content=content)
