"""Structured logs on stderr: what happened, to whom, how long it took; never what is remembered, nor a key."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

_QUIET = {
    # These print arguments, memory content or whole tracebacks; the butler logs every call and fault itself.
    "fastmcp": logging.ERROR,
    "fastmcp.server.server": logging.CRITICAL,
    "mcp": logging.ERROR,
    "uvicorn.access": logging.CRITICAL,
    "uvicorn.error": logging.ERROR,
    "asyncio": logging.CRITICAL,
    "sqlalchemy": logging.ERROR,
}
_OWN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, form: str) -> None:
    """Send every log line to stderr in the form asked for (`console` or `json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter())
    # Others are heard from their warnings on: what they say below that may quote anything.
    logging.basicConfig(level=max(logging.WARNING, _number(level)), handlers=[handler], force=True)
    logging.getLogger("butlers").setLevel(_number(level))
    for name, least in _QUIET.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(least)


def _number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a line carries beside its message."""
    return {name: value for name, value in vars(record).items() if name not in _OWN and value is not None}


def traceback_without_content(error: BaseException) -> str:
    """A traceback of places and kinds: an error's own words may quote what somebody stored."""
    lines: list[str] = []
    at: BaseException | None = error
    while at is not None:
        frames = traceback.extract_tb(at.__traceback__)
        lines += [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]
        state = getattr(at, "sqlstate", None)
        where = getattr(at, "constraint_name", None) or getattr(at, "table_name", None)
        lines.append(" ".join(str(part) for part in (type(at).__qualname__, state, where) if part))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

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
    """One line a person can read."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S")
        extras = " ".join(f"{name}={value}" for name, value in fields(record).items())
        said = f"{moment} {record.levelname.lower():7} {record.getMessage()}{'  ' + extras if extras else ''}"
        lines = [said]
        if record.exc_info and record.exc_info[1]:
            lines += traceback_without_content(record.exc_info[1]).splitlines()
        return "\n".join(_printable(line) for line in lines)


def _printable(text: str) -> str:
    """The text with control characters made visible: it can neither steer a terminal nor forge a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
