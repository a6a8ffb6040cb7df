"""Reading of transcript files: of any size, with lines that are no JSON or nested too deeply."""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from butlers.transcripts.formats import Format
from butlers.transcripts.transcript import Transcript

MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024


def read_transcript(path: Path, format_: Format, end: int | None = None) -> Transcript:
    """Return the transcript up to the byte `end`, of a very long one the last part.

    It is empty unless the path is a file that can be read.
    """
    return read_entries(_entries(_read_text(path, end)), format_)


def read_entries(entries: Iterable[Any], format_: Format) -> Transcript:
    """Return the transcript of these entries."""
    transcript = Transcript()
    for entry in entries:
        if isinstance(entry, Mapping):
            transcript.add(format_.read_entry(entry))
    return transcript


def _read_text(path: Path, end: int | None) -> str:
    try:
        # Without waiting for a writer: the path may be that of a pipe.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return ""
            last = status.st_size if end is None else min(end, status.st_size)
            start = max(0, last - MAX_TRANSCRIPT_BYTES)
            file.seek(start)
            return file.read(last - start).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def _entries(text: str) -> Iterator[Any]:
    """Yield the entries: one a line, or the messages of one document."""
    entries = [entry for line in text.split("\n") if (entry := _parse(line))] or [_parse(text)]
    for entry in entries:
        messages = entry.get("messages")
        yield from messages if isinstance(messages, list) else [entry]


def _parse(text: str) -> dict[str, Any]:
    """Return a JSON object; it is empty if the text is none, or nested too deeply."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
