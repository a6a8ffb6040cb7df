"""The overview: the verdict, what waits, counts and what is new; and the form that stores a first fact."""

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from butlers.cron import local_now, next_due
from butlers.dashboard import svg
from butlers.dashboard.forms import MAX_BYTES
from butlers.dashboard.page import Page
from butlers.dashboard.pages.acts import read_act
from butlers.dashboard.pages.route import PageRoute
from butlers.dashboard.pages.system import job_statuses, lossy_indexes
from butlers.dashboard.rendering import one_line
from butlers.dashboard.sentences import summarize
from butlers.dashboard.svg import Band
from butlers.dashboard.verdict import Health, judge
from butlers.host.job_runs import JobStatus
from butlers.modules.memory.domain.model import NewFact
from butlers.modules.memory.operations import overview, writing
from butlers.modules.memory.operations.overview import MAX_COUNTED, Overview

_MAX_LINES = 12
_BANDS = (
    ("0 to 0.2", "below_20", "0", "0.2"),
    ("0.2 to 0.4", "from_20_to_40", "0.2", "0.4"),
    ("0.4 to 0.6", "from_40_to_60", "0.4", "0.6"),
    ("0.6 to 0.8", "from_60_to_80", "0.6", "0.8"),
    ("0.8 to 1", "from_80", "0.8", ""),
)


async def show_overview(page: Page) -> Response:
    """Show the overview, or how to begin if nothing is remembered."""
    state = await overview.get_overview(page.memory, page.caller)
    if state.is_empty:
        return await page.render("welcome.html", commands=connect_commands(page))
    statuses = await job_statuses(page)
    bands = confidence_bands(page, state.bands)
    return await page.render(
        "overview.html",
        verdict=judge(health(page, state, statuses)),
        state=state,
        backlog=capped(state.backlog["total"]),
        next_reading=next_due(page.memory.config.schedule.consolidate, local_now()),
        rules=capped(state.rules["total"]),
        facts=capped(state.bands["total"]),
        max_counted=MAX_COUNTED,
        bands=bands,
        band_picture=svg.bands(bands, "Live facts by confidence"),
        learned=[
            (name, sum(counts), svg.spark(counts, f"New {name}s by day"))
            for name, counts in (("fact", state.facts_by_day), ("rule", state.rules_by_day))
        ],
        days=by_day(state.facts_by_day, state.rules_by_day),
        lines=summarize(state.events, _MAX_LINES),
    )


async def store_first_fact(page: Page) -> Response:
    """Store a fact from the form of the overview."""
    act = await read_act(page, "store")
    fact = NewFact(subject=act.text("subject"), predicate=act.text("predicate"), content=act.text("content"))
    stored = await writing.store_fact(act.memory, act.caller, fact, act.request)
    return page.redirect(f"/facts/{stored['id']}", done=act.caller.request_id)


def health(page: Page, state: Overview, statuses: Sequence[JobStatus]) -> Health:
    """Return the numbers that the verdict depends on."""
    oldest = state.backlog["oldest"]
    first = next_due(page.memory.config.schedule.consolidate, local_now())
    second = next_due(page.memory.config.schedule.consolidate, first)
    return Health(
        failing_jobs=[(each.job, each.error or "") for each in statuses if each.is_failing],
        dead_letters=state.backlog["dead_letters"],
        backlog=state.backlog["total"],
        backlog_hours=(datetime.now(UTC) - oldest).total_seconds() / 3600 if oldest else 0.0,
        reading_hours=(second - first).total_seconds() / 3600,
        tokens=state.tokens.last_day,
        token_limit=state.tokens.limit,
        lossy_indexes=lossy_indexes(statuses),
        harmful_rules=[(one_line(each["content"], 80), each["harmful_count"]) for each in state.harmful_rules],
        vital_fading=[
            f"{one_line(each['subject'], 40)} · {one_line(each['predicate'], 40)}" for each in state.vital_fading
        ],
        unseen_distilled=state.unseen_distilled,
    )


def capped(number: int) -> str:
    """Return a count as text; one beyond the maximum ends with +."""
    return f"{MAX_COUNTED:,}+" if number > MAX_COUNTED else f"{number:,}"


def confidence_bands(page: Page, counts: Mapping[str, Any]) -> list[Band]:
    """Return the bands of confidence, each with the link to its facts."""
    largest = max((counts[name] for _, name, _, _ in _BANDS), default=0) or 1
    return [
        Band(label, f"{counts[name]:,}", counts[name] / largest, page.url("/facts", min=low, below=high))
        for label, name, low, high in _BANDS
    ]


def by_day(facts: Sequence[int], rules: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return the days with their new facts and rules, the latest first."""
    names = [f"{days} days ago" for days in range(len(facts) - 1, 1, -1)] + ["the day before", "the last 24 hours"]
    return list(zip(names, facts, rules, strict=True))[::-1]


def connect_commands(page: Page) -> list[str]:
    """Return the commands that connect an agent to this butler."""
    config = page.server.config
    address = f"{page.request.url.scheme}://{page.request.url.netloc}{config.dashboard.base_path}/mcp"
    add = ["claude", "mcp", "add", "--transport", "http", config.name, address]
    if config.auth.mode != "local":
        return [shlex.join(add) + ' --header "Authorization: Bearer $BUTLERS_KEY"']
    folder = str(page.butler.config.folder.resolve())
    return [shlex.join(["butlers", "connect", folder, "claude-code", "--http"]), shlex.join(add)]


ROUTES = (PageRoute("/", show_overview), PageRoute("/acts/store", store_first_fact, "POST", max_form_bytes=MAX_BYTES))
