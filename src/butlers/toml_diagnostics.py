"""What is wrong with a TOML file, said for a person: the line, the key, the problem and what is allowed."""

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
"""A key from the root down; a number picks an element of an array."""

_STRING = (
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # up to two quotes may stand right before the closing three
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
    """The lines of every key in a text that tomllib has accepted."""

    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._breaks = [found.start() for found in re.finditer("\n", self._text)]
        self._lines: dict[Key, int] = {}
        self._last: dict[Key, int] = {}
        self._scan()

    def line_of(self, key: Key) -> int | None:
        """The line of the key or, where it has none of its own, of the nearest key around it."""
        for length in range(len(key), 0, -1):
            if line := self._lines.get(key[:length]):
                return line
        return None

    def _scan(self) -> None:
        """One statement after another: a header opens a table, an assignment stands in the open one."""
        table: Key = ()
        position = self._after_gap(0)
        while position < len(self._text):
            if header := _HEADER.match(self._text, position):
                table = self._open(_parts(header[2]), repeated=header[1] == "[[")
                self._record(table, position)
                position = header.end()
            elif assignment := _ASSIGNMENT.match(self._text, position):
                key = (*table, *_parts(assignment[1]))
                self._record(key, position)
                position = self._after_value(key, assignment.end())
            else:
                position = _end(_REST_OF_LINE, self._text, position) + 1
            position = self._after_gap(position)

    def _open(self, parts: Sequence[str], *, repeated: bool) -> Key:
        """The table a header opens; a name that is an array of tables means its last element."""
        key: Key = ()
        for part in parts[:-1]:
            key = self._latest((*key, part))
        key = (*key, parts[-1])
        if repeated:
            self._last[key] = self._last.get(key, -1) + 1
        return self._latest(key)

    def _latest(self, key: Key) -> Key:
        return (*key, self._last[key]) if key in self._last else key

    def _record(self, key: Key, position: int) -> None:
        line = bisect_left(self._breaks, position) + 1
        self._lines[key] = line
        # `[a.b]` and `a.b = 1` speak of `a` too; a header of its own overrides that later.
        for length in range(1, len(key)):
            self._lines.setdefault(key[:length], line)

    def _after_value(self, key: Key, position: int) -> int:
        """Pass over a value, noting where each element of an outermost array begins."""
        in_array = self._text.startswith("[", position)
        depth = index = 0
        noted = -1
        for token in self._tokens(position):
            position = token.end()
            sign = token[0]
            if depth == 0 and sign == "\n":
                break
            if in_array and depth == 1 and noted < index and _begins_element(sign):
                self._record((*key, index), token.end() - len(sign.lstrip()))
                noted = index
            depth += (sign in {"[", "{"}) - (sign in {"]", "}"})
            index += sign == "," and depth == 1
        return position

    def _tokens(self, position: int) -> Iterator[re.Match[str]]:
        while token := _TOKEN.match(self._text, position):
            yield token
            position = token.end()

    def _after_gap(self, position: int) -> int:
        return _end(_GAP, self._text, position)


def _begins_element(sign: str) -> bool:
    return bool(sign.strip()) and sign[0] not in "#],"


def _parts(raw: str) -> list[str]:
    """`a . "b c".'d'` as the names it stands for."""
    return [_unquoted(found[0]) for found in _PART.finditer(raw)]


def _unquoted(part: str) -> str:
    return str(tomllib.loads(f"name = {part}")["name"]) if part[0] in "\"'" else part


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the key it is wrong with."""

    key: Key
    sentence: str

    def message(self, file: str, lines: KeyLines) -> str:
        """`butler.toml line 12: butler.auth.mode: 'open' is not one of local, keys, jwt`."""
        line = lines.line_of(self.key)
        return f"{file}{f' line {line}' if line else ''}: {dotted_key(self.key)}: {self.sentence}"


def problems_from(error: ValidationError, model: type[BaseModel], key: Key) -> Iterator[Problem]:
    """What pydantic found in the table at `key`, in our words."""
    for details in error.errors(include_url=False):
        where = (*key, *details["loc"])
        if details["type"] == "extra_forbidden":
            yield unknown_key(_table_at(model, details["loc"][:-1]).model_fields, where)
        else:
            yield Problem(where, _sentence(details))


def unknown_key(known: Iterable[str], key: Key, kind: str = "key") -> Problem:
    """A name nobody reads, with the one that was probably meant and all there are."""
    names = list(known)
    near = difflib.get_close_matches(str(key[-1]), names, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return Problem(key, f"is not a known {kind}; {meant}known here: {', '.join(names) or 'none'}")


def validation_error_at(key: Key, sentence: str) -> ValidationError:
    """What a validator raises to blame a key further down than its own."""
    details = InitErrorDetails(type="value_error", loc=key, input=None, ctx={"error": ValueError(sentence)})
    return ValidationError.from_exception_data("refusal", [details])


def table_model_of(annotation: object) -> type[BaseModel] | None:
    """The model of a key that holds a table or a list of tables."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def dotted_key(key: Key) -> str:
    """The key as it would be written: `butler.schedule[1].cron`."""
    said = ""
    for part in key:
        if isinstance(part, int):
            said += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False)
            said += f".{name}" if said else name
    return said


def display_value(value: object) -> str:
    """The value on one short line, by the names TOML has for things."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date | time):
        return f"the date or time {value.isoformat()}"
    try:
        said = repr(value)
    except ValueError:  # Python writes out no whole number of more than 4,300 digits
        return "an enormous number"
    return said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…"


_SHOWN = 60
_SENTENCES = {
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


def _sentence(details: ErrorDetails) -> str:
    facts = {name: _plain(value) for name, value in details.get("ctx", {}).items()}
    got = display_value(details["input"])
    typed = f"the text {got}" if isinstance(details["input"], str) else got
    # pydantic lists the words as `'a', 'b' or 'c'`.
    facts["expected"] = str(facts.get("expected", "")).replace(" or ", ", ").replace("'", "")
    return _SENTENCES.get(details["type"], "{msg}").format(**facts, got=got, typed=typed, msg=details["msg"])


def _plain(value: object) -> object:
    """A bound as it was meant: pydantic turns `gt=0` of a number into 0.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _table_at(model: type[BaseModel], path: tuple[int | str, ...]) -> type[BaseModel]:
    for part in path:
        if isinstance(part, str):
            model = table_model_of(model.model_fields[part].annotation) or model
    return model
