"""Text views of consolidation runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from butlers.cli.memory_views import View, heading, parse_time
from butlers.cli.tables import TextTable, fields, visible

_SIGNS = {"new": "+", "replaced": "~", "confirmed": "✓"}


def runs(answer: Mapping[str, Any]) -> RenderableType:
    """Render the consolidation runs, or one of them as a diff."""
    if "runs" not in answer:
        run = {name: value for name, value in answer["run"].items() if value is not None}
        dropped = [visible("\n".join(["Dropped:", *answer["dropped"]]))] if answer["dropped"] else []
        return Group(fields(run), _items(answer["items"]), *dropped)
    if not answer["runs"]:
        return Text("Consolidation has not run yet.")
    return TextTable("when | learned | run / id / error: / looked at by:", [_row(run) for run in answer["runs"]])


def _row(run: Mapping[str, Any]) -> dict[str, Any]:
    new = run["facts_created"] + run["rules_created"]
    tokens = run["input_tokens"] + run["output_tokens"]
    return {
        **run,
        "when": parse_time(run["started_at"]),
        "learned": f"+{new} ~{run['facts_updated']} ✓{run['confirmed']} -{run['dropped']}",
        "run": f"{run['status']} · {run['butler']} · {run['episodes']} episodes · {tokens} tokens",
        "looked at by": ", ".join(run["looked_at_by"] or ()),
    }


def _items(items: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not items:
        return Text("It made nothing.")
    rows = [
        {
            **item,
            "change": f"{_SIGNS[item['change']]} {item['change']}",
            "memory": heading(item),
            "replaces": item["replaced"]["content"] if item.get("replaced") else "",
        }
        for item in items
    ]
    return TextTable("change | state | memory / content / replaces: / id", rows)


def take_back(answer: Mapping[str, Any]) -> RenderableType:
    """Render what is taken back of a run, and what stays."""
    rows = [
        {**item, "memory": heading(item), "effect": ": ".join(filter(None, (item["effect"], item.get("reason"))))}
        for item in answer["items"]
    ]
    table = TextTable("change | effect | memory / content / id", rows)
    if answer["dry_run"]:
        return Group(table, visible(f"{answer['taken_back']} would be taken back. Nothing was changed."))
    back = f" {len(answer['brought_back'])} facts before them are active again." if answer["brought_back"] else ""
    undo = f"To undo it: butlers memory undo DIR --request {answer['request_id']}"
    return Group(table, visible(f"Taken back: {answer['taken_back']}.{back} {undo}"))


def proposals(answer: Mapping[str, Any]) -> RenderableType:
    """Render the proposals that wait, or the decision about one."""
    if "proposals" not in answer:
        return visible(f"{'Accepted' if answer.get('accepted') else 'Declined'} the proposal {answer['id']}.")
    if not answer["proposals"]:
        return Text("No proposal waits.")
    rows = [
        {
            **each,
            "proposal": heading(each),
            "replaces": each.get("current", ""),
            "expires": parse_time(each["expires_at"]),
        }
        for each in answer["proposals"]
    ]
    return TextTable("change | expires | proposal / content / replaces: / id", rows)


VIEWS: Mapping[str, View] = {"memory_consolidation_runs": runs, "memory_proposals": proposals}
