"""Tables and fields for a terminal or a pipe."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from butlers.visible_text import escape_control_characters

_UNLIMITED_COLUMNS = 1_000_000


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows in a layout such as `state | name | found / fix:`.

    ` | ` separates columns, ` / ` stacks fields in one column, and a colon puts the field's name before its value.
    Only the last `wrapping` columns wrap. In a pipe every field is a column and every row one line.
    """

    layout: str
    rows: Sequence[Mapping[str, object]]
    wrapping: int = 1
    has_heading: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render for a pipe, or for the width of a terminal."""
        columns = [column.split(" / ") for column in self.layout.split(" | ")]
        if options.max_width == _UNLIMITED_COLUMNS:
            yield from self._lines([field.rstrip(":") for column in columns for field in column])
        else:
            yield self._table(columns)

    def _lines(self, fields: Sequence[str]) -> Iterator[Text]:
        heading = [[_label(field) for field in fields]] if self.has_heading else []
        rows = [[" ".join(visible(row.get(field)).plain.split("\n")) for field in fields] for row in self.rows]
        widths = [max(map(cell_len, column)) for column in zip(*heading, *rows, strict=True)]
        for row in (*heading, *rows):
            yield Text("  ".join(map(set_cell_size, row, widths)).rstrip())

    def _table(self, columns: Sequence[Sequence[str]]) -> Table:
        if self.has_heading:
            table = Table(header_style="bold", show_lines=any(len(column) > 1 for column in columns))
        else:
            table = Table(box=None, show_header=False, pad_edge=False)
        for place, column in enumerate(columns, start=1 - len(columns)):
            named = [field.rstrip(":") for field in column if field == column[0] or field.endswith(":")]
            is_number = all(isinstance(row.get(field), int) for row in self.rows for field in column)
            table.add_column(
                " / ".join(map(_label, named)),
                style="" if self.has_heading or place > -self.wrapping else "bold",
                justify="right" if is_number else "left",
                overflow="fold",
                no_wrap=place <= -self.wrapping,
            )
        for row in self.rows:
            table.add_row(*(_stack(column, row) for column in columns))
        return table


def fields(values: Mapping[str, object]) -> TextTable:
    """Return one line for each field: its name and its value."""
    rows = [{"name": _label(name), "value": value} for name, value in values.items()]
    return TextTable("name | value", rows, has_heading=False)


def visible(value: object) -> Text:
    """Return a value as text that can't control a terminal."""
    if isinstance(value, Text):
        return value
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    if isinstance(value, datetime):
        return Text(f"{value.astimezone():%Y-%m-%d %H:%M}")
    if isinstance(value, Mapping):
        return Text("\n").join(Text(f"{name}: ") + visible(each) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return Text(", ").join(visible(each) for each in value)
    return Text("" if value is None else escape_control_characters(str(value)))


def styled(value: object, style: str) -> Text:
    """Return a value as visible text in a style."""
    text = visible(value)
    text.stylize(style)
    return text


def render(shown: RenderableType, *, to_stderr: bool) -> None:
    """Print to stdout or stderr, as wide as the terminal or COLUMNS; a pipe without COLUMNS has no limit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character the terminal can't encode becomes an escape sequence instead of an error.
            stream.reconfigure(errors="backslashreplace")
    is_limited = (sys.stderr if to_stderr else sys.stdout).isatty() or os.environ.get("COLUMNS")
    width = None if is_limited else _UNLIMITED_COLUMNS
    console = Console(stderr=to_stderr, width=width, markup=False, highlight=False, emoji=False)
    # The terminal wraps plain text itself, so that it is copied as one line.
    console.print(shown, soft_wrap=isinstance(shown, Text))


def _label(field: str) -> str:
    return field.replace("_", " ")


def _stack(column: Sequence[str], row: Mapping[str, object]) -> Text:
    if len(column) == 1:
        return visible(row.get(column[0]))
    values = {field: row.get(field.rstrip(":")) for field in column}
    return Text("\n").join(
        Text(f"{_label(field)} " if field.endswith(":") else "") + visible(value)
        for field, value in values.items()
        if value is not False and visible(value)
    )
