"""Values of foreign records: texts, times, numbers, names and Markdown front matter, each read with care."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any

import yaml

_SLUG = re.compile(r"\W+")
_MAX_SLUG_CHARACTERS = 60
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_MAX_FRONT_MATTER_CHARACTERS = 16_000
_MILLISECONDS_FROM = 1e11
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_METADATA_CHARACTERS = 4_000
_FRACTION = re.compile(r"(\.\d{6})\d+")


def text(value: Any) -> str:
    """Return a text; empty if the value is none."""
    return value.strip() if isinstance(value, str) else ""


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or of one text with commas."""
    items = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(each.strip() for each in items if isinstance(each, str) and each.strip()))


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list."""
    yield from (each for each in (value if isinstance(value, list) else []) if isinstance(each, Mapping))


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object; empty if the value is none."""
    return value if isinstance(value, Mapping) else {}


def moment(value: Any) -> datetime | None:
    """Return a time from ISO 8601, a date or seconds (or milliseconds) since 1970; None if it is none of these."""
    try:
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, (int, float)):
            seconds = value / 1000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, UTC) if math.isfinite(seconds) and seconds > 0 else None
        if isinstance(value, datetime):
            found = value
        elif isinstance(value, date):
            found = datetime(value.year, value.month, value.day, tzinfo=UTC)
        else:
            found = datetime.fromisoformat(_FRACTION.sub(r"\1", str(value).strip()[:64]))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def importance(share: Any) -> float | None:
    """Return a score from 0 to 1 as an importance from 0 to 10; None if it is no such number."""
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    return round(share * 10, 3) if is_number and 0 <= share <= 1 else None


def slug(name: str, default: str = "note") -> str:
    """Return a name as a predicate: lower case, with underscores for everything that is no letter or digit."""
    return _SLUG.sub("_", name.lower()).strip("_")[:_MAX_SLUG_CHARACTERS].rstrip("_") or default


def small_metadata(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values of foreign metadata, and short lists of them; no objects, and nothing long."""
    kept = {str(name)[:100]: _plain(value) for name, value in values.items()}
    found = {name: value for name, value in kept.items() if value not in (None, "", [])}
    return found if len(str(found)) <= _MAX_METADATA_CHARACTERS else {}


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, list):
        return [each for each in value[:50] if isinstance(each, (str, int))]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) else None


def split_front_matter(document: str) -> tuple[Mapping[str, Any], str]:
    """Return the front matter of a Markdown text and the rest; raises `ValueError` if it can't be read."""
    matched = _FRONT_MATTER.match(document)
    if matched is None:
        return {}, document
    if len(matched[1]) > _MAX_FRONT_MATTER_CHARACTERS:
        raise ValueError("its front matter is too long")
    try:
        values = yaml.load(matched[1], _YAML_LOADER)  # noqa: S506 — a safe loader, in C where there is one
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ValueError("its front matter is not valid YAML") from None
    return mapping(values), document[matched.end() :]
