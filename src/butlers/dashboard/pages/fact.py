"""Page of one fact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from butlers.dashboard import svg_graph
from butlers.dashboard.confidence_view import view_confidence
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.quotation import best_sentence
from butlers.dashboard.sentences import summarize
from butlers.dashboard.svg_graph import Node
from butlers.dashboard.word_diff import DiffPart, word_diff
from butlers.modules.memory.operations import viewing_details
from butlers.modules.memory.operations.viewing_details import FactDetails

_MAX_LINES = 100


@dataclass(frozen=True, slots=True)
class Change:
    """Two versions of a fact, one after the other, and the words that differ."""

    old: Mapping[str, Any]
    new: Mapping[str, Any]
    parts: Sequence[DiffPart]


async def show_fact(page: Page) -> Response:
    """Show one fact."""
    details = await viewing_details.fact_details(page.memory, page.caller, page.path_id())
    fact, now = details.fact, datetime.now(UTC)
    return await page.render(
        "fact.html",
        fact=fact,
        confidence=view_confidence(fact, details.trail.confidence_changes, page.memory.config.confidence, now),
        state=state_of(fact),
        trail=details.trail,
        quotations=quotations(details.trail.evidence, f"{fact['subject']} {fact['predicate']} {fact['content']}"),
        changes=changes(details),
        versions=draw_versions(page, details),
        merged=details.superseded_in_merges,
        receipt_days=page.memory.config.receipt_days,
        lines=summarize(details.trail.events, _MAX_LINES),
    )


def state_of(memory: Mapping[str, Any]) -> str:
    """Return the state of a fact or rule in one word."""
    if memory["metadata"].get("forgotten"):
        return "forgotten"
    state = memory.get("validity", "active")
    return "fading" if state == "active" and memory["metadata"].get("status") == "fading" else str(state)


def quotations(evidence: Sequence[Mapping[str, Any]], about: str) -> list[Mapping[str, Any]]:
    """Return the episodes behind a memory, each with the sentence that is closest to it."""
    return [
        {**each, "sentence": best_sentence(each["content"], about) if each["content"] else None} for each in evidence
    ]


def changes(details: FactDetails) -> list[Change]:
    """Return the changes from version to version, the latest first."""
    newest_first = [*reversed(details.superseding), details.fact, *details.superseded]
    return [Change(old, new, word_diff(old["content"], new["content"])) for new, old in pairwise(newest_first)]


def draw_versions(page: Page, details: FactDetails) -> Markup | None:
    """Return the versions of a fact as a timeline; None if there is only one."""
    before = list(reversed(details.superseded))
    versions = [*before, details.fact, *details.superseding]
    if len(versions) == 1:
        return None
    nodes = [(Node(each["content"], page.url(f"/facts/{each['id']}")), each["created_at"]) for each in versions]
    return svg_graph.chain(nodes, len(before))


ROUTES = (PageRoute("/facts/{id:uuid}", show_fact),)
