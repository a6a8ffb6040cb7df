"""Structured logs on stderr. They never contain memories or keys."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

_LIBRARY_LEVELS = {
    # These log arguments, memory content or full tracebacks. The butler logs every call and fault itself.
    "fastmcp": logging.ERROR,
    "fastmcp.server.server": logging.CRITICAL,
    "mcp": logging.ERROR,
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.ERROR,
    "asyncio": logging.CRITICAL,
    "sqlalchemy": logging.ERROR,
    "asyncpg": logging.ERROR,
}
_STANDARD_FIELDS = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, form: str) -> None:
    """Send all logs to stderr in the given form (`console` or `json`)."""
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    # Libraries log from warnings on: their lower levels may quote content.
    logging.basicConfig(level=max(logging.WARNING, number), handlers=[handler], force=True)
    logging.getLogger("butlers").setLevel(number)
    for name, library_level in _LIBRARY_LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(library_level)


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields of a record."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS and value is not None}


def traceback_without_content(error: BaseException) -> str:
    """Return a traceback of code locations and error types. Messages are left out: they may quote a memory."""
    lines: list[str] = []
    current: BaseException | None = error
    while current is not None:
        frames = traceback.extract_tb(current.__traceback__)
        lines += [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        state = getattr(current, "sqlstate", None)
        database_object = getattr(current, "constraint_name", None) or getattr(current, "table_name", None)
        lines.append(" ".join(str(part) for part in (type(current).__qualname__, state, database_object) if part))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields(record),
        }
        if record.exc_info and record.exc_info[1]:
            line["traceback"] = traceback_without_content(record.exc_info[1])
        return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """Formats a record as one line of text, with the traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        extras = " ".join(f"{name}={value}" for name, value in fields(record).items())
        lines = [f"{time} {record.levelname.lower():7} {record.getMessage()}{'  ' + extras if extras else ''}"]
        if record.exc_info and record.exc_info[1]:
            lines += traceback_without_content(record.exc_info[1]).splitlines()
        return "\n".join(_printable(line) for line in lines)


def _printable(text: str) -> str:
    """Escape control characters: they could steer a terminal or forge a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
