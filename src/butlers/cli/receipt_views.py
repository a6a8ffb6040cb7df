"""Text views of what sessions were told."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from butlers.cli.memory_views import View
from butlers.cli.tables import TextTable, visible

OUTCOMES = {
    "told": "told",
    "no_room": "no room",
    "too_long": "too long for any section",
    "beyond_best": "others ranked higher",
}


def receipts(answer: Mapping[str, Any]) -> RenderableType:
    """Render what a session was told, call by call."""
    if not answer["receipts"]:
        return Text("The session has no receipts: it was told nothing, or they were deleted.")
    parts: list[RenderableType] = []
    for receipt in answer["receipts"]:
        parts.append(visible(_heading(receipt)))
        if receipt["lines"]:
            rows = [
                {**line, "outcome": OUTCOMES[line["outcome"]], "id": line["memory_id"]} for line in receipt["lines"]
            ]
            parts.append(TextTable("rank | score | tokens | outcome | memory_type / id", rows))
    if answer["truncated"]:
        parts.append(Text("Earlier receipts are not shown."))
    return Group(*parts)


def told(answer: Mapping[str, Any]) -> RenderableType:
    """Render the sessions that were told a memory."""
    if not answer["told"]:
        return Text("No session was told it.")
    rows = [
        {**each, "when": datetime.fromisoformat(each["told_at"]), "by": each["agent"] or each["butler"]}
        for each in answer["told"]
    ]
    table = TextTable("when | source | rank | score | session_id / by", rows)
    return Group(visible(f"{answer['sessions']} sessions were told it."), table)


def _heading(receipt: Mapping[str, Any]) -> str:
    when = datetime.fromisoformat(receipt["told_at"]).astimezone()
    tokens = f", {receipt['tokens']} of {receipt['token_budget']} tokens" if receipt["tokens"] is not None else ""
    counts = f"{receipt['told']} told, {receipt['left_out']} left out{tokens}"
    return f"{when:%Y-%m-%d %H:%M} {receipt['source']} by {receipt['agent'] or receipt['butler']}: {counts}"


def sessions(answer: Mapping[str, Any]) -> RenderableType:
    """Render a list of sessions."""
    if not answer["sessions"]:
        return Text("No session has run.")
    rows = [
        {
            **each,
            "when": datetime.fromisoformat(each["started_at"]),
            "session": each["prompt"] or each["purpose"],
            "by": each["purpose"],
            "tokens": _tokens(each["usage"]),
            "state": each["status"] or "of an agent",
        }
        for each in answer["sessions"]
    ]
    parts: list[RenderableType] = [TextTable("when | state | told | tokens | session / by / id", rows)]
    if answer["next_cursor"]:
        parts.append(visible(f"The next ones: --cursor {answer['next_cursor']}"))
    return Group(*parts)


def _tokens(usage: Mapping[str, int]) -> str:
    return f"{usage['input_tokens'] + usage['output_tokens']:,}" if "input_tokens" in usage else "unknown"


VIEWS: Mapping[str, View] = {"memory_sessions": sessions, "memory_receipts": receipts, "memory_told": told}
