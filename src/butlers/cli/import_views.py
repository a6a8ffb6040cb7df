"""Tables of imports from other systems."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from butlers.cli.tables import TextTable, visible

_LABELS = {"link": "link (made with new memories)"}


def foreign_import(answer: Mapping[str, Any]) -> RenderableType:
    """Render what became what, what was left out and why, and how to take it back."""
    return Group(*_parts(answer))


def _parts(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield visible(f"{answer['format']}, into the tenant {answer['tenant']}")
    rows = [
        {"becomes": _LABELS.get(kind, kind), "new": number, "already_there": answer["known"][kind]}
        for kind, number in answer["new"].items()
    ]
    yield TextTable("becomes | new | already_there", rows)
    left_out = [{"number": number, "left_out": reason} for reason, number in answer["left_out"].items()]
    if left_out:
        yield TextTable("number | left_out", left_out)
    if answer["problems"]:
        yield TextTable("place | problem", answer["problems"], wrapping=2)
        more = answer["problem_count"] - len(answer["problems"])
        if more:
            yield Text(f"… and {more:,} more problems")
    yield from _notes(answer)


def _notes(answer: Mapping[str, Any]) -> Iterator[RenderableType]:
    if answer["changed"]:
        yield Text(
            f"{answer['changed']:,} memories have other words in the file; they stay as they are. "
            "--replace with the id of the earlier import replaces them."
        )
    if answer["retracted"]:
        verb = "would be" if answer["dry_run"] else "were"
        yield Text(f"{answer['retracted']:,} memories of the earlier import {verb} retracted.")
    if answer["redacted"]:
        kinds = ", ".join(f"{number} {kind}" for kind, number in answer["redacted"].items())
        yield visible(f"Secrets taken out: {kinds}.")
    if answer["dry_run"]:
        yield Text("Nothing was changed.")
        return
    yield Text(f"{answer['memories']} memories in {answer['seconds']:.1f} s, {answer['memories_per_second']:.1f}/s")
    if answer["import_id"]:
        yield Text(f"To take it back: butlers memory retract-from DIR --import {answer['import_id']}")


def imports(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render the imports of a tenant, newest first."""
    if not answer:
        return Text("Nothing was imported.")
    rows = [
        {
            "when": each["occurred_at"],
            "id": each["id"],
            "from": each["origin"].get("format") or f"the butler {each['origin'].get('butler')}",
            "file": each["origin"].get("file"),
            "imported": {kind: number for kind, number in each["imported"].items() if number},
        }
        for each in answer
    ]
    return TextTable("when | from / file / id | imported", rows)
