"""Page of the review: one item at a time, with one key for each judgement."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from starlette.responses import Response

from butlers.caller import Caller
from butlers.dashboard.confidence_view import view_confidence
from butlers.dashboard.page import Page
from butlers.dashboard.pages.fact import changes, quotations
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.word_diff import word_diff
from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import MAX_LISTED_CHARACTERS
from butlers.modules.memory.operations import review, viewing_details
from butlers.modules.memory.operations.review import Pile, ReviewItem
from butlers.modules.memory.operations.viewing_details import MemoryTrail
from butlers.modules.memory.runtime import Memory, TtlCache

_COUNT_SECONDS = 60.0
_MAX_DIGITS = 9
"""A longer number is cut: Python takes no number of thousands of digits."""


class PileWords(NamedTuple):
    """How a pile is named, why an item is in it, and what is said when it is empty."""

    name: str
    reason: str
    empty: str


WORDS = {
    Pile.FADING: PileWords("Fading", "It fades within two weeks, or has begun to.", "Nothing fades soon."),
    Pile.DISTILLED: PileWords(
        "Distilled",
        "Consolidation learned it, nothing else supports it, and nobody has looked at it.",
        "Everything that consolidation learned has been looked at.",
    ),
    Pile.PROPOSALS: PileWords(
        "Proposals",
        "Consolidation proposes it. It is in no search until somebody accepts it.",
        "No proposal of consolidation waits.",
    ),
    Pile.HARMFUL: PileWords("Harmful", "It did harm since somebody last looked at it.", "No rule did harm."),
    Pile.TWINS: PileWords(
        "Twins", "These two say nearly the same. Nothing is merged by itself.", "No two memories say nearly the same."
    ),
    Pile.DEAD_LETTERS: PileWords(
        "Dead letters", "Consolidation failed too often on this episode.", "Consolidation gave up on no episode."
    ),
}


@dataclass(frozen=True, slots=True)
class PileLink:
    """A pile in the line of piles."""

    pile: Pile
    name: str
    count: str


class ReviewCounts:
    """How many memories wait for judgement, for the navigation; counted at most once a minute for each tenant."""

    def __init__(self) -> None:
        self._sizes: TtlCache[dict[Pile, int]] = TtlCache(_COUNT_SECONDS)

    async def sizes(self, memory: Memory, caller: Caller) -> dict[Pile, int]:
        """Return the sizes of the piles."""
        return await self._sizes.get(caller.tenant, lambda: review.pile_sizes(memory, caller))

    async def count(self, memory: Memory, caller: Caller) -> str:
        """Return the number as text; empty if nothing waits."""
        sizes = await self.sizes(memory, caller)
        total = sum(sizes.values())
        return f"{total}+" if review.MAX_ITEMS in sizes.values() else str(total or "")

    def forget(self, caller: Caller) -> None:
        """Count the tenant's memories again for the next page."""
        self._sizes.forget(caller.tenant)


async def show_review(page: Page) -> Response:
    """Show the next item of a pile; `skip` leaves the first items for later."""
    counts: ReviewCounts = page.request.app.state.review_counts
    sizes = await counts.sizes(page.memory, page.caller)
    pile = _chosen(page.query("of"), sizes)
    skip = _skipped(page.query("skip"))
    opened = await review.open_pile(page.memory, page.caller, pile, skip)
    if pile in sizes and sizes[pile] != opened.total:
        # Something changed since the piles were counted: count them again.
        counts.forget(page.caller)
        sizes = await counts.sizes(page.memory, page.caller)
    item = opened.item
    return await page.render(
        "review.html",
        pile=pile,
        words=WORDS[pile],
        piles=[PileLink(each, WORDS[each].name, _count(sizes.get(each))) for each in Pile],
        item=item,
        number=skip + 1,
        total=opened.total,
        skip=min(skip, opened.total),
        later=page.url("/review", of=pile, skip=skip + 1),
        link=_link(page, item),
        max_characters=MAX_LISTED_CHARACTERS if pile is Pile.TWINS else review.MAX_CHARACTERS,
        other_link=page.url(f"{_path(item.record_type)}/{item.other['id']}") if item and item.other else None,
        **await _background(page, item),
        next_to_fade=None if item else await review.next_to_fade(page.memory, page.caller),
    )


async def _background(page: Page, item: ReviewItem | None) -> dict[str, Any]:
    """Return what is shown under a fact or rule: its episodes, its confidence over time and what it replaced."""
    empty: dict[str, Any] = {"quotations": (), "confidence": None, "change": None, "replaces": ()}
    if item is not None and item.record_type == "proposal":
        current = item.record.get("current")
        return {**empty, "replaces": word_diff(current, item.record["content"]) if current else ()}
    if item is None or item.other is not None or item.record_type not in {"fact", "rule"}:
        return empty
    words = (item.record.get("subject"), item.record.get("predicate"), item.record["content"])
    about = " ".join(word for word in words if word)
    if item.record_type == "rule":
        rule = await viewing_details.rule_details(page.memory, page.caller, item.id)
        return {**empty, **_trail(page, rule.rule, rule.trail, about)}
    fact = await viewing_details.fact_details(page.memory, page.caller, item.id)
    replaced = [each for each in changes(fact) if each.new["id"] == item.id]
    return {**empty, **_trail(page, fact.fact, fact.trail, about), "change": replaced[0] if replaced else None}


def _trail(page: Page, record: Mapping[str, Any], trail: MemoryTrail, about: str) -> dict[str, Any]:
    config, now = page.memory.config.confidence, datetime.now(UTC)
    return {
        "quotations": quotations(trail.evidence, about),
        "confidence": view_confidence(record, trail.confidence_changes, config, now),
    }


def _skipped(text: str) -> int:
    """Return how many items are left for later: at most as many as a pile has."""
    return min(int(text[:_MAX_DIGITS]), review.MAX_ITEMS) if text.isdecimal() else 0


def _chosen(name: str, sizes: dict[Pile, int]) -> Pile:
    """Return the named pile, or without a name the first one that has items. Raises `InvalidInput`."""
    if name in set(Pile):
        return Pile(name)
    if name:
        raise InvalidInput("there is no such pile", hint=f"Use one of: {', '.join(Pile)}.")
    return next((pile for pile in Pile if sizes.get(pile)), Pile.FADING)


def _count(number: int | None) -> str:
    if not number:
        return ""
    return f"{review.MAX_ITEMS}+" if number >= review.MAX_ITEMS else str(number)


def _link(page: Page, item: ReviewItem | None) -> str | None:
    if item and item.record_type == "proposal":
        return page.url(f"/consolidation/{item.record['run_id']}")
    return page.url(f"{_path(item.record_type)}/{item.id}") if item else None


def _path(record_type: str) -> str:
    return "/entities" if record_type == "entity" else f"/{record_type}s"


ROUTES = (PageRoute("/review", show_review),)
