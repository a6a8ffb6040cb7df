"""Page of one rule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.responses import Response

from butlers.dashboard import svg
from butlers.dashboard.confidence_view import view_confidence
from butlers.dashboard.page import Page
from butlers.dashboard.pages.fact import quotations, state_of
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.sentences import summarize
from butlers.dashboard.svg import Mark
from butlers.modules.memory.domain import maturity
from butlers.modules.memory.domain.maturity import TrackRecord
from butlers.modules.memory.domain.model import Maturity
from butlers.modules.memory.operations import viewing_details

_MAX_LINES = 100


async def show_rule(page: Page) -> Response:
    """Show one rule."""
    details = await viewing_details.rule_details(page.memory, page.caller, page.path_id())
    rule, now = details.rule, datetime.now(UTC)
    marks = replay(rule, details.marks)
    return await page.render(
        "rule.html",
        rule=rule,
        confidence=view_confidence(rule, details.trail.confidence_changes, page.memory.config.confidence, now),
        state=state_of(rule),
        reasons=reasons_of(rule),
        trail=details.trail,
        quotations=quotations(details.trail.evidence, rule["content"]),
        marks=list(zip(details.marks, marks, strict=True))[::-1],
        strip=svg.strip(marks) if marks else None,
        next_steps=maturity.describe_next_steps(track_record(rule, now)),
        receipt_days=page.memory.config.receipt_days,
        lines=summarize(details.trail.events, _MAX_LINES),
    )


def reasons_of(rule: Mapping[str, Any]) -> list[str]:
    """Return why a rule did harm."""
    reasons = rule["metadata"].get("harmful_reasons")
    return [str(each) for each in reasons] if isinstance(reasons, list) else []


def track_record(rule: Mapping[str, Any], now: datetime) -> TrackRecord:
    """Return the track record of a rule."""
    return TrackRecord(
        Maturity(rule["maturity"]),
        rule["applied_count"],
        rule["success_count"],
        rule["harmful_count"],
        rule["effectiveness"],
        now - rule["created_at"],
        bool(rule["metadata"].get("needs_inversion")),
    )


def replay(rule: Mapping[str, Any], applications: Sequence[Mapping[str, Any]]) -> list[Mark]:
    """Return the marks with the effectiveness and maturity after each, from the counts before the first of them.

    An event tells the maturity; without one, the rules of maturity do.
    """
    helpful = sum(each["outcome"] == "helpful" for each in applications)
    successes = max(rule["success_count"] - helpful, 0)
    harms = max(rule["harmful_count"] - (len(applications) - helpful), 0)
    record = TrackRecord(Maturity.CANDIDATE, successes + harms, successes, harms, 0.0, timedelta(0))
    marks = []
    for each in applications:
        record = _after(replace(record, age=each["applied_at"] - rule["created_at"]), each)
        marks.append(Mark(each["applied_at"], each["outcome"], record.effectiveness, record.maturity))
    return marks


def _after(record: TrackRecord, application: Mapping[str, Any]) -> TrackRecord:
    if application["outcome"] == "helpful":
        record = maturity.after_helpful_mark(record)
        level = maturity.maturity_after_help(record)
    else:
        record = maturity.after_harmful_mark(record)
        level = maturity.maturity_after_harm(record)
    # An imported event may name anything.
    is_known = application["maturity"] in set(Maturity)
    return replace(record, maturity=Maturity(application["maturity"]) if is_known else level)


ROUTES = (PageRoute("/rules/{id:uuid}", show_rule),)
