"""Error messages for TOML files, with line, key, problem and allowed values."""

import difflib
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

Key = tuple[str | int, ...]
"""A path of names from the root; a number is the index of an array element."""

_STRING = (
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # up to two quotes may precede the closing three
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)
_KEY_PART = r'(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|' + r"'[^'\n]*')"
_KEY = _KEY_PART + r"(?:[ \t]*\.[ \t]*" + _KEY_PART + r")*"
_HEADER = re.compile(r"(\[\[?)[ \t]*(" + _KEY + r")[ \t]*\]\]?")
_ASSIGNMENT = re.compile(r"(" + _KEY + r")[ \t]*=[ \t]*")
_PART = re.compile(_KEY_PART)
_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_REST_OF_LINE = re.compile(r"[^\n]*")
_TOKEN = re.compile(_STRING + r"|#[^\n]*|[\[\]{},\n]|[^\[\]{},\n#\"']+|.", re.DOTALL)


class KeyLines:
    """The line of every key in a text that tomllib has parsed."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._line_ends = [match.start() for match in re.finditer("\n", self._text)]
        self._lines: dict[Key, int] = {}
        self._last_index: dict[Key, int] = {}
        self._scan()

    def line_of(self, key: Key) -> int | None:
        """Return the line of the key or, if it has none, of the nearest enclosing key."""
        lines = (self._lines.get(key[:length]) for length in range(len(key), 0, -1))
        return next(filter(None, lines), None)

    def _scan(self) -> None:
        """Record the line of every header and assignment; an assignment belongs to the table of the last header."""
        table: Key = ()
        position = self._skip(_GAP, 0)
        while position < len(self._text):
            if header := _HEADER.match(self._text, position):
                table = self._open_table(_split_key(header[2]), repeated=header[1] == "[[")
                self._record(table, position)
                position = header.end()
            elif assignment := _ASSIGNMENT.match(self._text, position):
                key = (*table, *_split_key(assignment[1]))
                self._record(key, position)
                position = self._skip_value(key, assignment.end())
            else:
                position = self._skip(_REST_OF_LINE, position) + 1
            position = self._skip(_GAP, position)

    def _open_table(self, parts: Sequence[str], *, repeated: bool) -> Key:
        """Return the key of the table that a header opens; an array of tables stands for its last element."""
        key: Key = ()
        for part in parts[:-1]:
            key = self._with_last_index((*key, part))
        key = (*key, parts[-1])
        if repeated:
            self._last_index[key] = self._last_index.get(key, -1) + 1
        return self._with_last_index(key)

    def _with_last_index(self, key: Key) -> Key:
        return (*key, self._last_index[key]) if key in self._last_index else key

    def _record(self, key: Key, position: int) -> None:
        line = bisect_left(self._line_ends, position) + 1
        self._lines[key] = line
        # `[a.b]` and `a.b = 1` also define `a`; a later header `[a]` overrides its line.
        for length in range(1, len(key)):
            self._lines.setdefault(key[:length], line)

    def _skip_value(self, key: Key, position: int) -> int:
        """Return the position after a value; record the line of each element if it is an array."""
        in_array = self._text.startswith("[", position)
        depth = index = 0
        recorded = -1
        for token in self._tokens(position):
            position = token.end()
            symbol = token[0]
            if depth == 0 and symbol == "\n":
                break
            if in_array and depth == 1 and recorded < index and _begins_element(symbol):
                self._record((*key, index), token.end() - len(symbol.lstrip()))
                recorded = index
            depth += (symbol in {"[", "{"}) - (symbol in {"]", "}"})
            index += symbol == "," and depth == 1
        return position

    def _tokens(self, position: int) -> Iterator[re.Match[str]]:
        while token := _TOKEN.match(self._text, position):
            yield token
            position = token.end()

    def _skip(self, pattern: re.Pattern[str], position: int) -> int:
        match = pattern.match(self._text, position)
        return match.end() if match else position


def _begins_element(symbol: str) -> bool:
    return bool(symbol.strip()) and symbol[0] not in "#],"


def _split_key(raw: str) -> list[str]:
    """Return the names in a dotted key such as `a . "b c".'d'`."""
    return [tomllib.loads(f"name = {part}")["name"] if part[0] in "\"'" else part for part in _PART.findall(raw)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and the key that has it."""

    key: Key
    sentence: str

    def message(self, file: str, lines: KeyLines) -> str:
        """`butler.toml line 12: butler.auth.mode: 'open' is not one of local, keys, jwt`."""
        line = lines.line_of(self.key)
        return f"{file}{f' line {line}' if line else ''}: {dotted_key(self.key)}: {self.sentence}"


def problems_from(error: ValidationError, model: type[BaseModel], key: Key) -> Iterator[Problem]:
    """Yield the problems that pydantic found in the table at `key`."""
    for details in error.errors(include_url=False):
        full_key = (*key, *details["loc"])
        if details["type"] == "extra_forbidden":
            yield unknown_key(_table_at(model, details["loc"][:-1]).model_fields, full_key)
        else:
            yield Problem(full_key, _message(details))


def unknown_key(known: Iterable[str], key: Key, kind: str = "key") -> Problem:
    """Return the problem of an unknown name, with the closest known name and all known names."""
    names = list(known)
    close = difflib.get_close_matches(str(key[-1]), names, n=1)
    suggestion = f"did you mean {close[0]}? " if close else ""
    return Problem(key, f"is not a known {kind}; {suggestion}known here: {', '.join(names) or 'none'}")


def validation_error_at(key: Key, sentence: str) -> ValidationError:
    """Return the error that a validator raises about a key inside the one it validates."""
    details = InitErrorDetails(type="value_error", loc=key, input=None, ctx={"error": ValueError(sentence)})
    return ValidationError.from_exception_data("refusal", [details])


def table_model_of(annotation: object) -> type[BaseModel] | None:
    """Return the model of a key that contains a table or a list of tables; None for other keys."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def dotted_key(key: Key) -> str:
    """Return the key as text, such as `butler.schedule[1].cron`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def display_value(value: object) -> str:
    """Return the value on one short line, in TOML's terms."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return f"the date or time {value.isoformat()}"
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return "an enormous number"
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


_MAX_VALUE_CHARACTERS = 60
_MESSAGES = {
    "missing": "is required",
    "value_error": "{error}",
    "literal_error": "{got} is not one of {expected}",
    "finite_number": "expected a finite number, got {got}",
    "bool_type": "expected true or false, got {typed}",
    "float_type": "expected a number, got {typed}",
    "int_type": "expected a whole number, got {typed}",
    "list_type": "expected a list, got {typed}",
    "model_type": "expected a table, got {typed}",
    "string_type": "expected text, got {typed}",
    "greater_than": "must be above {gt}, got {got}",
    "greater_than_equal": "must be at least {ge}, got {got}",
    "less_than": "must be below {lt}, got {got}",
    "less_than_equal": "must be at most {le}, got {got}",
}


def _message(details: ErrorDetails) -> str:
    context = {name: _without_fraction(value) for name, value in details.get("ctx", {}).items()}
    got = display_value(details["input"])
    typed = f"the text {got}" if isinstance(details["input"], str) else got
    # pydantic lists the values as `'a', 'b' or 'c'`.
    context["expected"] = str(context.get("expected", "")).replace(" or ", ", ").replace("'", "")
    return _MESSAGES.get(details["type"], "{msg}").format(**context, got=got, typed=typed, msg=details["msg"])


def _without_fraction(value: object) -> object:
    """Return a whole float as an integer: pydantic turns `gt=0` into 0.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _table_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    for part in path:
        if isinstance(part, str):
            model = table_model_of(model.model_fields[part].annotation) or model
    return model
