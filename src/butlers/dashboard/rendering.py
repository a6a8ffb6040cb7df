"""Templates of the dashboard: the environment, its filters, and the shell around every page."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from butlers.caller import Caller
from butlers.dashboard import static_files
from butlers.errors import Fault
from butlers.modules.memory.operations import done_acts, viewing
from butlers.modules.memory.operations.done_acts import DoneAct
from butlers.visible_text import escape_control_characters, has_hidden_characters

if TYPE_CHECKING:
    from butlers.dashboard.page import Page


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """An entry of the navigation: its key after `g`, and how many there are of it."""

    label: str
    path: str
    key: str
    count: str = ""


@dataclass(frozen=True, slots=True)
class Shell:
    """What every page shows around its content."""

    butler: str
    tenant: str
    actor: str
    home_tenant: str | None
    is_logged_in: bool
    may_act: bool
    is_live: bool
    """Whether the page is updated when a memory changes; forms before a login or a visit are not."""
    may_visit: bool
    """Whether the caller may enter other tenants."""
    needs_login: bool
    navigation: tuple[NavigationItem, ...]
    current: str
    style_sheet: str
    script: str
    icon: str
    keyed_by: str
    """A new idempotency key for the forms of this page."""
    done: DoneAct | None
    """The act that led to this page."""
    done_sentence: str
    here: str
    """The path and query of this page, without the act that led to it."""


async def render(page: "Page", template: str, values: Mapping[str, Any]) -> str:
    """Return a page as HTML, with the counts of its tenant in the navigation."""
    try:
        counts = await viewing.navigation_counts(page.memory, page.caller)
        if waiting := await page.request.app.state.review_counts.count(page.memory, page.caller):
            counts["review"] = waiting
        request_id = page.query("done")
        done = await done_acts.describe_done(page.memory, page.caller, request_id) if request_id else None
    except Fault:
        # The page itself says what is wrong; the shell does without its numbers.
        counts, done = {}, None
    return _render(page, template, values, counts, done, is_live=True)


def render_without_counts(page: "Page", template: str, values: Mapping[str, Any]) -> str:
    """Return a page as HTML, without a database query."""
    return _render(page, template, values, {})


def render_error(page: "Page", status: int, message: str, hint: str) -> str:
    """Return the page for an error, without a database query."""
    return _render(page, "error.html", {"status": status, "message": message, "hint": hint}, {})


def _render(
    page: "Page",
    template: str,
    values: Mapping[str, Any],
    counts: Mapping[str, str],
    done: DoneAct | None = None,
    *,
    is_live: bool = False,
) -> str:
    shell = _shell(page, counts, done, is_live=is_live)
    return (
        _environment()
        .get_template(template)
        .render(page=page, url=page.url, shell=shell, now=datetime.now(UTC), **values)
    )


def _shell(page: "Page", counts: Mapping[str, str], done: DoneAct | None, *, is_live: bool) -> Shell:
    caller: Caller = page.caller
    items = (
        NavigationItem("Overview", "/", "o"),
        NavigationItem("Review", "/review", "v", counts.get("review", "")),
        NavigationItem("Facts", "/facts", "f", counts.get("facts", "")),
        NavigationItem("Rules", "/rules", "r", counts.get("rules", "")),
        NavigationItem("Episodes", "/episodes", "e", counts.get("episodes", "")),
        NavigationItem("Entities", "/entities", "n", counts.get("entities", "")),
        NavigationItem("Consolidation", "/consolidation", "l"),
        NavigationItem("Sessions", "/sessions", "s"),
        NavigationItem("Audit", "/audit", "a"),
        NavigationItem("System", "/system", "y"),
    )
    path = page.current_path
    section = next((each.path for each in items[1:] if path == each.path or path.startswith(each.path + "/")), path)
    return Shell(
        butler=page.server.config.name,
        tenant=caller.tenant,
        actor=caller.actor,
        home_tenant=caller.home_tenant,
        is_logged_in=bool(caller.actor),
        may_act=not caller.is_reader,
        is_live=is_live,
        may_visit=caller.is_admin and caller.elevated,
        needs_login=page.server.config.auth.mode != "local",
        navigation=items,
        current=section,
        style_sheet=_static_url(page, "app.css"),
        script=_static_url(page, "app.js"),
        icon=_static_url(page, "icon.svg"),
        keyed_by=page.new_key(),
        done=done,
        done_sentence=done_sentence(done) if done else "",
        here=_path_without_done(page),
    )


_DONE = {
    "created": "Stored",
    "confirmed": "Confirmed",
    "confirmation_withdrawn": "Took back a confirmation of",
    "forgotten": "Forgot",
    "restored": "Restored",
    "edited": "Changed",
    "updated": "Changed",
    "superseded": "Replaced",
    "moved": "Moved",
    "inversion_reverted": "Made a rule again:",
    "marked_helpful": "Marked as helpful:",
    "marked_harmful": "Marked as harmful:",
    "looked_at": "Looked at",
    "declined": "Declined",
    "related": "Both hold:",
    "requeued": "Queued again:",
    "merge": "Merged into",
}


def done_sentence(done: DoneAct) -> str:
    """Return what an act did, as a short sentence."""
    change = done.event_type.partition("_")[2]
    is_undo = change.endswith("_undone")
    verb = "Undone:" if is_undo else _DONE.get(change, change.replace("_", " ").capitalize())
    what = one_line(done.label, 80) if done.label else f"a {done.record_type}"
    sentence = f"{verb} {what}" if done.number == 1 else f"{verb} {done.number:,} {done.record_type}s"
    if not done.brought_back or is_undo:
        return sentence
    back = "the fact before it is" if done.brought_back == 1 else f"{done.brought_back:,} facts before them are"
    return f"{sentence} · {back} live again"


def _path_without_done(page: "Page") -> str:
    parts = [part for part in page.request.url.query.split("&") if part and not part.startswith("done=")]
    return page.current_path + ("?" + "&".join(parts) if parts else "")


def _static_url(page: "Page", name: str) -> str:
    return page.url(f"/static/{static_files.load(name).digest}/{name}")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("butlers.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": escape_control_characters,
        "has_hidden": has_hidden_characters,
        "one_line": one_line,
        "percent": lambda share: f"{100 * share:.0f} %",
        "decimal": lambda number: "unknown" if number is None else f"{number:.2f}",
        "day": lambda time: "never" if time is None else f"{time:%-d %b %Y}",
        "iso": lambda time: time.isoformat(timespec="seconds"),
        "count": lambda number: f"{number:,}",
        "amount": lambda number, noun: f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s",
    }
    return environment


def one_line(text: str, characters: int = 160) -> str:
    """Return the beginning of a text as one line, hidden characters visible."""
    line = " ".join(text[: 4 * characters].split())
    shown = line if len(line) <= characters else line[: characters - 1] + "…"
    return escape_control_characters(shown)
