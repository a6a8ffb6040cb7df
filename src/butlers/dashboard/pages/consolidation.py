"""Pages of consolidation: the runs, one run as a diff, what taking it back does, and the next prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.responses import Response

from butlers import cron
from butlers.dashboard.listing import ListQuery
from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import parse_id
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.word_diff import DiffPart, word_diff
from butlers.errors import Unavailable
from butlers.modules.memory.operations import consolidation, consolidation_runs, proposals
from butlers.modules.memory.operations.consolidation_runs import RunDiff, RunItem

SIGNS = {"new": "+", "replaced": "~", "confirmed": "✓"}
_MAX_PROMPT = 20_000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """An item of a run as the page shows it."""

    item: RunItem
    sign: str
    effect: str
    reason: str
    path: str
    parts: Sequence[DiffPart]
    """The words that differ from the fact it replaced."""


async def show_runs(page: Page) -> Response:
    """Show the runs, newest first."""
    query = ListQuery.read(page, "/consolidation")
    found = await consolidation_runs.list_runs(page.memory, page.caller, query.start("time"))
    groups = await consolidation.pending_groups(page.memory, page.caller)
    return await page.render(
        "consolidation.html",
        rows=[{**row, "seconds": consolidation_runs.seconds_of(row)} for row in found.rows],
        pager=query.pager(found),
        waiting=sum(each.pending for each in groups),
        problem=_problem(page),
        next_run=_next_run(page),
    )


def _problem(page: Page) -> str:
    """Return why no session can be started; empty if one can."""
    spawner = page.memory.spawner
    if spawner is None:
        return "This butler starts no sessions, so nothing is consolidated. Set a runtime under `[butler.runtime]`."
    try:
        spawner.check()
    except Unavailable as fault:
        return f"{fault.message}. {fault.hint}"
    return ""


def _next_run(page: Page) -> datetime | None:
    return cron.next_due(page.memory.config.schedule.consolidate, cron.local_now())


async def show_run(page: Page) -> Response:
    """Show what a run read, and what it made of it."""
    diff = await consolidation_runs.show_run(page.memory, page.caller, page.path_id())
    waiting = await proposals.list_waiting(page.memory, page.caller, page.path_id())
    lines = [_line(each) for each in diff.items]
    return await page.render(
        "consolidation_run.html",
        run=diff.run,
        seconds=consolidation_runs.seconds_of(diff.run),
        episodes=[{**each, "outcome": _outcome(diff, each["id"])} for each in diff.episodes],
        lines=lines,
        waiting=len(waiting),
        dropped=diff.dropped,
        is_live=any(each.effect != "gone" for each in lines),
        can_accept=any(each.item.is_live and each.item.change != "confirmed" for each in lines),
    )


def _line(item: RunItem) -> DiffLine:
    effect, reason = item.effect()
    old, new = item.replaced, item.record["content"]
    parts = word_diff(old["content"] or "", new) if old and new else ()
    return DiffLine(item, SIGNS[item.change], effect, reason, f"/{item.memory_type}s/{item.id}", parts)


def _outcome(diff: RunDiff, episode_id: UUID) -> list[dict[str, Any]]:
    return [
        {"sign": SIGNS[each.change], "id": each.id, "name": _name(each)}
        for each in diff.items
        if episode_id in each.evidence
    ]


def _name(item: RunItem) -> str:
    record = item.record
    return f"{record['subject']} · {record['predicate']}" if record["subject"] else record["content"] or "erased"


async def show_take_back(page: Page) -> Response:
    """Show what taking back a run, or one item of it, would do."""
    item = page.query("item")
    ids = [parse_id(item)] if item else None
    run_id = page.path_id()
    preview = await consolidation_runs.preview_take_back(page.memory, page.caller, run_id, ids=ids)
    supported = any(each["effect"] == "stays" and each["change"] != "confirmed" for each in preview["items"])
    return await page.render(
        "take_back.html", run_id=run_id, item=item, preview=preview, supported=supported, signs=SIGNS
    )


async def show_prompts(page: Page) -> Response:
    """Show the prompts that a run would send now; nothing is taken."""
    prompts = await consolidation.preview(page.memory, page.caller)
    shown = [{**each, "prompt": each["prompt"][:_MAX_PROMPT]} for each in prompts]
    return await page.render("prompts.html", prompts=shown, max_characters=_MAX_PROMPT)


ROUTES = (
    PageRoute("/consolidation", show_runs),
    PageRoute("/consolidation/prompts", show_prompts),
    PageRoute("/consolidation/{id:uuid}", show_run),
    PageRoute("/consolidation/{id:uuid}/take-back", show_take_back),
)
