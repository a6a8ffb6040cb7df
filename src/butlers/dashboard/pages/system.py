"""The system page: checks, jobs, backlog, tokens, connections, indexes and vectors; and the act that runs a job."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from butlers import doctor
from butlers.contract import Check
from butlers.dashboard import authentication, svg
from butlers.dashboard.page import Page
from butlers.dashboard.pages.route import PageRoute
from butlers.errors import Forbidden, NotFound
from butlers.host import browser_sessions
from butlers.host.job_runs import JobStatus
from butlers.modules.memory.operations import job_requests, overview
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.operations.index_upkeep import MIN_RECALL

_RUN_SECONDS = 2.0
"""A job that takes longer goes on after the answer."""
_INDEX_JOB = "index_upkeep"
_OTHER_TENANTS = {"backlog"}
"""Checks that count in all tenants; the page counts in one."""


async def show_system(page: Page) -> Response:
    """Show the state of the butler; what concerns all tenants is for administrators only."""
    may_see_host = is_keeper(page)
    statuses = await job_statuses(page)
    memory = await memory_view(page)
    return await page.render(
        "system.html",
        may_see_host=may_see_host,
        checks=await run_checks(page) if may_see_host else [],
        statuses=statuses,
        pool=page.server.database.usage() if may_see_host else None,
        indexes=index_rows(statuses),
        is_lossy=bool(lossy_indexes(statuses)),
        min_recall=MIN_RECALL,
        memory=memory,
        sessions=await open_sessions(page),
    )


async def open_sessions(page: Page) -> list[Mapping[str, Any]]:
    """Return the browser sessions of the tenant, which one of them this is; none where nobody has to log in."""
    if page.server.config.auth.mode == "local" or not is_keeper(page):
        return []
    own = await authentication.current_session(page)
    found = await browser_sessions.list_sessions(page.butler.database, page.caller)
    return [{**each, "is_own": own is not None and each["id"] == own.id} for each in found]


async def run_job(page: Page) -> Response:
    """Run a job now: wait a moment for its end, then answer."""
    if not is_keeper(page):
        raise Forbidden("only an administrator may run a job", hint="Log in with a key that has the role admin.")
    form = await page.form()
    name = str(form.get("name", ""))
    if name not in {status.job for status in await page.server.jobs()}:
        raise NotFound("there is no such job", hint="The system page lists the jobs.")
    request = Request("run_job", {"name": name}, str(form.get("key", "")) or None)
    if await job_requests.record_job_request(page.memory, page.caller, name, request):
        await page.server.run_job(name, _RUN_SECONDS)
    return page.redirect("/system")


def is_keeper(page: Page) -> bool:
    """Whether the caller may see and do what concerns all tenants."""
    return page.server.config.auth.mode == "local" or page.caller.is_admin


async def job_statuses(page: Page) -> Sequence[JobStatus]:
    """Return the jobs; none for a caller who may not see what concerns all tenants."""
    return await page.server.jobs() if is_keeper(page) else ()


async def run_checks(page: Page) -> list[Check]:
    """Return the checks of `butlers doctor` that a running butler can make, the worst first."""
    checks = [each for each in await doctor.run_live_checks(page.butler) if each.name not in _OTHER_TENANTS]
    return sorted(checks, key=lambda check: ("fail", "warn", "ok").index(check.state))


async def memory_view(page: Page) -> Mapping[str, Any] | None:
    """Return the backlog, tokens and vectors of the tenant; None if the memory module is off."""
    if all(module.name != "memory" for module in page.butler.modules):
        return None
    health = await overview.get_health(page.memory, page.caller)
    tokens = health.tokens
    return {
        "health": health,
        "ages": [
            (words, health.backlog[name])
            for words, name in (
                ("less than an hour", "under_1_hour"),
                ("1 to 6 hours", "under_6_hours"),
                ("6 to 24 hours", "under_1_day"),
                ("more than a day", "over_1_day"),
            )
        ],
        "spark": svg.spark(tokens.by_day, "Tokens by day", tokens.limit),
        "days": list(zip(range(len(tokens.by_day)), tokens.by_day[::-1], strict=True)),
    }


def index_rows(statuses: Sequence[JobStatus]) -> list[Mapping[str, Any]]:
    """Return the vector indexes as the last run of their upkeep measured them."""
    result = next((each.result for each in statuses if each.job == _INDEX_JOB and each.result), None) or {}
    return [{"recall": None, **values, "table": table} for table, values in (result.get("indexes") or {}).items()]


def lossy_indexes(statuses: Sequence[JobStatus]) -> list[tuple[str, float]]:
    """Return the tables whose index misses too many memories, and the share that it finds."""
    rows = [(each["table"], each["recall"]) for each in index_rows(statuses)]
    return [(table, recall) for table, recall in rows if recall is not None and recall < MIN_RECALL]


ROUTES = (PageRoute("/system", show_system), PageRoute("/acts/run-job", run_job, "POST"))
