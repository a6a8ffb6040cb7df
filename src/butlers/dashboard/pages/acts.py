"""Acts: each form is one operation, carried out once, and answered with the page it came from."""

import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from starlette.datastructures import FormData
from starlette.responses import Response

from butlers.caller import Caller
from butlers.dashboard.forms import MAX_BYTES, form_text
from butlers.dashboard.page import Page
from butlers.dashboard.pages.bulk_selection import select_all
from butlers.dashboard.pages.login import local_path, split_address
from butlers.dashboard.pages.route import PageRoute
from butlers.errors import Conflict, InvalidInput, NotFound
from butlers.modules.memory.domain.entities import EntityChange
from butlers.modules.memory.domain.entity_resolution import NameMatch, ResolutionHints
from butlers.modules.memory.domain.model import MemoryEdit, MemoryType, NewRule, Permanence
from butlers.modules.memory.operations import (
    bulk,
    consolidation,
    consolidation_runs,
    editing,
    entities,
    feedback,
    looking,
    management,
    proposals,
    retraction,
    rule_inversion,
    twins,
    undo,
    writing,
)
from butlers.modules.memory.operations.idempotency import Request, find_answer, refuse_id_of_call
from butlers.modules.memory.runtime import Memory
from butlers.visible_text import escape_control_characters

MAX_KEY_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Act:
    """A submitted form: its memory, its caller and its request, which a second submit repeats."""

    name: str
    page: Page
    caller: Caller
    form: FormData

    @property
    def memory(self) -> Memory:
        """The memory of the page."""
        return self.page.memory

    @property
    def request(self) -> Request:
        """The request under the form's idempotency key."""
        arguments = {
            name: [str(value) for value in self.form.getlist(name)]
            for name in sorted(self.form)
            if name not in {"key", "back", "confirmed"}
        }
        return Request(f"dashboard_{self.name}", arguments, self.caller.request_id)

    def text(self, name: str) -> str:
        """Return a field, without surrounding blanks; empty if it is missing."""
        return form_text(self.form, name)

    def id(self, name: str = "id") -> UUID:
        """Return a field that is an id. Raises `InvalidInput`."""
        return parse_id(self.text(name))

    @property
    def memory_type(self) -> MemoryType:
        """Return the field `type`. Raises `InvalidInput`."""
        try:
            return MemoryType(self.text("type"))
        except ValueError:
            raise InvalidInput("type is not fact, rule or episode", hint="Use the forms of the pages.") from None


ActHandler = Callable[[Act], Awaitable[Any]]


async def confirm(act: Act) -> Any:
    """Restart the decay of a fact or rule."""
    return await feedback.confirm(act.memory, act.caller, act.memory_type, act.id(), act.request)


async def forget(act: Act) -> Any:
    """Hide a memory from every search."""
    return await management.forget(act.memory, act.caller, act.memory_type, act.id(), act.request)


async def take_back(act: Act) -> Any:
    """Forget a memory and bring back the fact that it replaced."""
    return await retraction.take_back(act.memory, act.caller, act.memory_type, act.id(), act.request)


async def take_back_run(act: Act) -> Any:
    """Take back what a consolidation run learned, all or one item."""
    every = bool(act.text("include_corroborated"))
    ids = [act.id("item")] if act.text("item") else None
    arguments = (act.memory, act.caller, act.id("run"), act.request)
    return await consolidation_runs.take_back(*arguments, ids=ids, include_corroborated=every)


async def accept_run(act: Act) -> Any:
    """Record that a person looked at everything a run made."""
    return await consolidation_runs.accept(act.memory, act.caller, act.id("run"), act.request)


async def accept_proposal(act: Act) -> Any:
    """Store what consolidation proposes."""
    return await proposals.accept(act.memory, act.caller, act.id(), act.request)


async def decline_proposal(act: Act) -> Any:
    """Decline what consolidation proposes."""
    return await proposals.decline(act.memory, act.caller, act.id(), act.request)


async def restore(act: Act) -> Any:
    """Make a forgotten memory searchable again."""
    return await management.restore(act.memory, act.caller, act.memory_type, act.id(), act.request)


async def correct(act: Act) -> Any:
    """Supersede a fact with new content."""
    return await editing.correct(act.memory, act.caller, act.id(), act.text("content"), act.request)


async def edit(act: Act) -> Any:
    """Change importance, permanence or tags in place; a field that is not in the form stays as it is."""
    change = MemoryEdit(
        importance=_number(act.text("importance")) if act.text("importance") else None,
        permanence=_permanence(act.text("permanence")) if act.text("permanence") else None,
        tags=tuple(split_lines(act.text("tags"))) if "tags" in act.form else None,
    )
    return await editing.edit(act.memory, act.caller, act.memory_type, act.id(), change, act.request)


async def store_rule(act: Act) -> Any:
    """Store a rule from the form of the empty list."""
    return await writing.store_rule(act.memory, act.caller, NewRule(content=act.text("content")), act.request)


async def mark_helpful(act: Act) -> Any:
    """Count a success of a rule."""
    return await feedback.mark_helpful(act.memory, act.caller, act.id(), act.request)


async def mark_harmful(act: Act) -> Any:
    """Count a harm of a rule, with its reason."""
    return await feedback.mark_harmful(act.memory, act.caller, act.id(), act.text("reason") or None, act.request)


async def revert_inversion(act: Act) -> Any:
    """Turn a warning into the rule it was."""
    return await rule_inversion.revert_inversion(act.memory, act.caller, act.id(), act.request)


async def move(act: Act) -> Any:
    """Move a fact to an entity, which is named by its name or its id."""
    entity = await _find_entity(act, act.text("entity"))
    return await editing.move(act.memory, act.caller, act.id(), entity, act.request)


async def _find_entity(act: Act, text: str) -> UUID:
    """Return the entity of this id or name. Raises `NotFound`, and `Conflict` if several have the name."""
    with contextlib.suppress(ValueError):
        return UUID(text)
    found = await entities.resolve(act.memory, act.caller, text, None, ResolutionHints(), fuzzy=False)
    named = {
        match: [each.candidate.id for each in found if each.candidate.match is match]
        for match in (NameMatch.EXACT, NameMatch.ALIAS)
    }
    ids = named[NameMatch.EXACT] or named[NameMatch.ALIAS]
    if not ids:
        raise NotFound("no entity has this name", hint="Write it as the list of entities shows it.")
    if len(ids) > 1:
        raise Conflict(f"{len(ids)} entities have this name", hint="Send the id of one; its address ends with it.")
    return ids[0]


async def change_entity(act: Act) -> Any:
    """Change the name, aliases and metadata of an entity."""
    change = EntityChange(
        canonical_name=act.text("name") or None,
        aliases=tuple(split_lines(act.text("aliases"))) if "aliases" in act.form else None,
        metadata=_json_object(act.text("metadata")) if act.text("metadata") else None,
    )
    return await entities.update(act.memory, act.caller, act.id(), change, act.request)


async def retry(act: Act) -> Any:
    """Queue a dead-lettered episode for consolidation again."""
    answer = await consolidation.retry_dead_letters(act.memory, act.caller, [act.id()], act.request)
    if not answer["requeued"]:
        raise NotFound("no dead letter has this id", hint="Reload the page: the episode may be queued already.")
    return answer


async def look_at(act: Act) -> Any:
    """Record that a person looked at a fact or rule."""
    return await looking.mark_looked_at(act.memory, act.caller, act.memory_type, act.id(), act.request)


async def keep_both(act: Act) -> Any:
    """Record that two memories that look like twins both hold."""
    ids = act.id(), act.id("other")
    return await twins.keep_both(act.memory, act.caller, act.text("type"), *ids, act.request)


async def merge(act: Act) -> Any:
    """Merge an entity into another; the reader has typed the name of the one that goes."""
    stored = await find_answer(act.memory, act.caller, act.request)
    if stored is not None:
        # A merged entity has another name.
        return stored
    source, target = act.id("source"), act.id("target")
    name = (await entities.get(act.memory, act.caller, source))["canonical_name"]
    # Hidden characters are shown as escapes, which is what a reader can type.
    if act.text("name") not in {name.strip(), escape_control_characters(name).strip()}:
        raise InvalidInput("the name is not that of the entity that goes", hint="Go back and type it as it is shown.")
    return await entities.merge(act.memory, act.caller, source, target, act.request)


async def retract(act: Act) -> Any:
    """Retract everything that comes from a session or an episode."""
    origin = read_origin(act.text("session"), act.text("episode"))
    answer = await retraction.retract(
        act.memory, act.caller, origin, act.request, include_corroborated=bool(act.text("include_corroborated"))
    )
    if not any(answer["retracted"].values()):
        raise NotFound("nothing was taken back", hint="Nothing that is live comes from it, or other episodes say it.")
    return answer


async def act_on_many(act: Act) -> Any:
    """Confirm, forget, restore or tag the selected memories of a list."""
    arguments = (act.memory, act.caller, act.memory_type, await _selected_ids(act))
    return await bulk.act_on_many(*arguments, act.text("act"), split_list(act.text("tags")), act.request)


async def _selected_ids(act: Act) -> list[UUID]:
    """Return the ids of the selected rows, or of all that match the list's filter."""
    if act.text("all"):
        return await select_all(act.page, act.memory_type, act.text("filter"))
    return [parse_id(str(each)) for each in act.form.getlist("id")]


def read_origin(session: str, episode: str) -> retraction.Origin:
    """Return the session or episode that a retraction starts from. Raises `InvalidInput`."""
    if bool(session) == bool(episode):
        raise InvalidInput("name a session or an episode", hint="Use the links on the pages of episodes.")
    return retraction.Origin(
        session_id=parse_id(session) if session else None, episode_id=parse_id(episode) if episode else None
    )


def parse_id(text: str) -> UUID:
    """Return an id. Raises `InvalidInput`."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"{text[:50]} is not an id", hint="Use the forms of the pages.") from None


async def undo_request(act: Act) -> Any:
    """Undo one event, or everything that one call did."""
    if act.text("event"):
        return await undo.undo_event(act.memory, act.caller, act.id("event"), act.request)
    return await undo.undo(act.memory, act.caller, act.text("request"), act.request)


def split_list(text: str) -> list[str]:
    """Return the parts of a field with commas or lines between them."""
    return [part.strip() for part in text.replace("\n", ",").split(",") if part.strip()]


def split_lines(text: str) -> list[str]:
    """Return the lines of a field: a tag or an alias may have a comma in it."""
    return [part.strip() for part in text.split("\n") if part.strip()]


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidInput("the metadata is no JSON object", hint='Write it like {"team": "kitchen"}.')
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text} is not a number", hint="Send a number from 0 to 10.") from None


def _permanence(text: str) -> Permanence:
    try:
        return Permanence(text)
    except ValueError:
        names = ", ".join(Permanence)
        raise InvalidInput(f"{text} is not a permanence", hint=f"Choose one of {names}.") from None


def handler_of(name: str, perform: ActHandler) -> Callable[[Page], Awaitable[Response]]:
    """Return the page handler of an act."""

    async def handle(page: Page) -> Response:
        act = await read_act(page, name)
        answer = await perform(act)
        page.request.app.state.review_counts.forget(page.caller)
        return done(page, act, answer)

    return handle


async def read_act(page: Page, name: str) -> Act:
    """Return the submitted form. The idempotency key is also the request's id, so that a second submit has it too.

    Raises `InvalidInput` without a key, and `Conflict` if the key is the id of another call.
    """
    form = await page.form()
    key = str(form.get("key", "")).strip()
    if not 8 <= len(key) <= MAX_KEY_CHARACTERS or not key.isascii() or not key.isprintable():
        raise InvalidInput("the form has no key", hint="Reload the page and send the form again.")
    await refuse_id_of_call(page.memory, page.caller, key)
    return Act(name, page, replace(page.caller, request_id=key), form)


def done(page: Page, act: Act, answer: Mapping[str, Any]) -> Response:
    """Return to the page of the form, which then says what was done. A corrected fact leads to its successor."""
    back = local_path(act.text("back") or "/")
    path, parts = split_address(back)
    if act.name == "correct" and path.startswith("/facts/"):
        path = f"/facts/{answer['id']}"
    kept = [part for part in parts if not part.startswith("done=")]
    return page.redirect_to(path, [*kept, f"done={act.caller.request_id}"])


_HANDLERS: dict[str, ActHandler] = {
    "confirm": confirm,
    "forget": forget,
    "take-back": take_back,
    "take-back-run": take_back_run,
    "accept-run": accept_run,
    "accept-proposal": accept_proposal,
    "decline-proposal": decline_proposal,
    "restore": restore,
    "correct": correct,
    "edit": edit,
    "store-rule": store_rule,
    "helpful": mark_helpful,
    "harmful": mark_harmful,
    "revert-inversion": revert_inversion,
    "move": move,
    "entity": change_entity,
    "retry": retry,
    "looked": look_at,
    "both-hold": keep_both,
    "merge": merge,
    "retract": retract,
    "bulk": act_on_many,
    "undo": undo_request,
}

ROUTES = tuple(
    PageRoute(f"/acts/{name}", handler_of(name, perform), "POST", max_form_bytes=MAX_BYTES)
    for name, perform in _HANDLERS.items()
)
