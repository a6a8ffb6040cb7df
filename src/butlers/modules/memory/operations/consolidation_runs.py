"""Consolidation runs as diffs: what each learned, replaced, confirmed and dropped, and taking it back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS, Connection
from butlers.errors import NotFound
from butlers.modules.memory.domain.errors import ChangedSince
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.domain.record_state import difference, difference_of_payload, revert
from butlers.modules.memory.operations.idempotency import Answer, Request, run_once
from butlers.modules.memory.operations.paging import PAGE_ROWS, ListPage, Position, Start, fetch_page
from butlers.modules.memory.operations.retraction import retract_within
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import consolidation_runs as queries
from butlers.modules.memory.store import events, facts, provenance, states
from butlers.modules.memory.store.events import Event

Record = Mapping[str, Any]
_LIVE = "active"
_SUPPORTED = "supported"


@dataclass(slots=True)
class RunItem:
    """A memory that a run created or confirmed, and what taking it back would do."""

    change: str
    """new, replaced or confirmed."""
    memory_type: MemoryType
    id: UUID
    record: Record
    """Its present subject, predicate, content, scope and state; the contents are None if it was erased."""
    changes: list[Record] = field(default_factory=list)
    """The payloads and times of its events in the run."""
    evidence: Sequence[UUID] = ()
    others: int = 0
    """Episodes outside the run that say the same."""
    is_withdrawn: bool = False
    can_withdraw: bool = True

    @property
    def is_live(self) -> bool:
        """Whether a search can find it."""
        return bool(self.record["state"] == _LIVE)

    @property
    def replaced(self) -> Record | None:
        """The fact that it replaced."""
        if self.change != "replaced":
            return None
        return {"id": self.record["replaced_id"], "content": self.record["replaced_content"],
                "state": self.record["replaced_state"]}  # fmt: skip

    @property
    def support(self) -> str:
        """Who else says it; empty if nobody does."""
        if self.others:
            return (
                f"{self.others} other episode says it" if self.others == 1 else f"{self.others} other episodes say it"
            )
        return "somebody confirmed it since" if self.record["provenance"] == _SUPPORTED else ""

    def effect(self, *, include_corroborated: bool = False) -> tuple[str, str]:
        """Return what taking it back does, `goes`, `stays` or `gone`, and why it stays or since when it is gone."""
        if self.change == "confirmed":
            if self.is_withdrawn:
                return "gone", "taken back"
            is_possible = self.is_live and self.can_withdraw
            return ("goes", "") if is_possible else ("stays", "it has changed since")
        if not self.is_live:
            return "gone", str(self.record["state"] or "erased")
        if self.support and not include_corroborated:
            return "stays", self.support
        return "goes", ""


@dataclass(frozen=True, slots=True)
class RunDiff:
    """A run, the episodes it read and the memories it created or confirmed."""

    run: Record
    episodes: Sequence[Record]
    items: Sequence[RunItem]

    @property
    def dropped(self) -> list[str]:
        """The actions that were not applied, and why."""
        return [*self.run["errors"], *self.run["parse_errors"]]


async def list_runs(memory: Memory, caller: Caller, start: Start) -> ListPage:
    """Return a page of runs, newest first."""
    async with memory.transaction(caller) as tx:

        async def fetch(at: Start) -> list[Record]:
            return await queries.list_runs(
                tx, caller, from_time=at.time, from_id=at.id, is_backward=at.is_backward, limit=PAGE_ROWS + 1
            )

        return await fetch_page(start, fetch, lambda row: Position(row["started_at"], row["id"]))


async def show_run(memory: Memory, caller: Caller, run_id: UUID) -> RunDiff:
    """Return one run as a diff; nothing changes. Raises `NotFound`."""
    async with memory.transaction(caller) as tx:
        return await _diff(tx, caller, run_id)


async def _diff(tx: Connection, caller: Caller, run_id: UUID) -> RunDiff:
    run = await queries.get(tx, caller, run_id)
    if run is None:
        raise NotFound(f"there is no consolidation run {run_id}", hint="`butlers memory runs DIR` lists them.")
    episodes = await queries.episodes(tx, caller, run_id)
    items = _items(await queries.changes(tx, caller, run_id))
    ids, read = [each.id for each in items], [each["id"] for each in episodes]
    evidence = await queries.evidence(tx, caller, read, ids)
    others = {each.id: each.corroborated_by for each in await provenance.derived_from(tx, caller, read)}
    withdrawn = await queries.withdrawn(tx, caller, run_id, ids)
    for each in items:
        each.evidence, each.others = evidence.get(each.id, ()), others.get(each.id, 0)
        each.is_withdrawn = each.id in withdrawn
    await _check_confirmed(tx, caller, items)
    return RunDiff(run, episodes, items)


def _items(changes: Sequence[Record]) -> list[RunItem]:
    """Return one item for each memory; a memory that the run itself created and confirmed is a new one."""
    items: dict[UUID, RunItem] = {}
    for row in sorted(changes, key=lambda each: each["event_type"].endswith("_confirmed")):
        is_created = row["event_type"].endswith("_created")
        change = ("replaced" if row["replaced_id"] else "new") if is_created else "confirmed"
        item = items.setdefault(row["id"], RunItem(change, MemoryType(row["memory_type"]), row["id"], row))
        item.changes.append(row)
    return list(items.values())


async def _check_confirmed(tx: Connection, caller: Caller, items: Sequence[RunItem]) -> None:
    """Note which confirmations can't be taken back, because the memory has changed since."""
    for kind in (MemoryType.FACT, MemoryType.RULE):
        confirmed = [each for each in items if each.change == "confirmed" and each.memory_type is kind]
        found = await states.fetch(tx, caller, kind, [each.id for each in confirmed])
        for each in confirmed:
            each.can_withdraw = each.id in found and _state_before(each, found[each.id]) is not None


def _state_before(item: RunItem, now: Mapping[str, Any]) -> Mapping[str, Any] | None:
    told = [difference_of_payload(each["payload"]) for each in item.changes if "before" in each["payload"]]
    try:
        return revert(now, told)
    except ChangedSince:
        return None


async def take_back(
    memory: Memory,
    caller: Caller,
    run_id: UUID,
    request: Request,
    *,
    ids: Sequence[UUID] | None = None,
    include_corroborated: bool = False,
) -> Answer:
    """Take back what a run learned, all or these memories, in one transaction; an undo of the call restores it.

    New memories are forgotten, facts that they replaced are active again, and confirmations no longer count. What
    others say as well stays, unless `include_corroborated` is set. Raises `NotFound` if nothing can be taken back.
    """

    async def work(tx: Connection) -> Answer:
        diff = await _diff(tx, caller, run_id)
        chosen = _choose(diff.items, ids)
        going = [each for each in chosen if each.effect(include_corroborated=include_corroborated)[0] == "goes"]
        created = {
            kind: sorted(each.id for each in going if each.memory_type is kind and each.change != "confirmed")
            for kind in (MemoryType.FACT, MemoryType.RULE)
        }
        await facts.lock_keys_of_facts(tx, caller, [each.id for each in going if each.memory_type is MemoryType.FACT])
        counts, brought_back = await retract_within(tx, caller, created, {"run": str(run_id)})
        episode_ids = [each["id"] for each in diff.episodes]
        withdrawn = [
            each
            for each in going
            if each.change == "confirmed" and await _withdraw(tx, caller, run_id, each, episode_ids)
        ]
        if not any(counts.values()) and not withdrawn:
            raise NotFound("nothing can be taken back", hint="It is gone already, or others say it as well.")
        return {
            "dry_run": False,
            "run_id": str(run_id),
            "request_id": caller.request_id,
            "taken_back": sum(counts.values()) + len(withdrawn),
            "brought_back": [str(each) for each in brought_back],
            "items": [describe(each, include_corroborated=include_corroborated) for each in chosen],
        }

    return await run_once(memory.write_transaction(caller, seconds=WRITE_TIMEOUT_SECONDS), caller, request, work)


def _choose(items: Sequence[RunItem], ids: Sequence[UUID] | None) -> list[RunItem]:
    if ids is None:
        return list(items)
    chosen = [each for each in items if each.id in ids]
    if missing := set(ids) - {each.id for each in chosen}:
        raise NotFound(
            f"the run did not make {min(missing)}", hint="`butlers memory runs DIR RUN` lists what it made."
        )
    return chosen


async def _withdraw(tx: Connection, caller: Caller, run_id: UUID, item: RunItem, episode_ids: Sequence[UUID]) -> bool:
    """Give a memory the state before the run confirmed it, without the links of that; False if it changed since."""
    now = (await states.lock(tx, caller, item.memory_type, [item.id])).get(item.id)
    before = _state_before(item, now) if now else None
    if now is None or before is None:
        return False
    await states.write(tx, caller, item.memory_type, {item.id: before})
    links = [
        link
        for moment in sorted({each["occurred_at"] for each in item.changes})
        for link in await queries.delete_support(tx, caller, item.memory_type, item.id, episode_ids, moment)
    ]
    told = {"run": str(run_id), "links": links, "confidence": before["confidence"]}
    payload = {**told, **difference(now, before).payload}
    event_type = f"{item.memory_type}_confirmation_withdrawn"
    await events.append(tx, caller, Event(event_type, item.memory_type, item.id, payload))
    return True


async def preview_take_back(
    memory: Memory,
    caller: Caller,
    run_id: UUID,
    *,
    ids: Sequence[UUID] | None = None,
    include_corroborated: bool = False,
) -> Answer:
    """Return what taking back would do, and what would stay because others say it; nothing changes."""
    diff = await show_run(memory, caller, run_id)
    chosen = _choose(diff.items, ids)
    items = [describe(each, include_corroborated=include_corroborated) for each in chosen]
    going = {each["id"] for each in items if each["effect"] == "goes"}
    back = [each["replaced"]["id"] for each in items if each["effect"] == "goes" and _comes_back(each, going)]
    return {
        "dry_run": True,
        "run_id": str(run_id),
        "taken_back": len(going),
        "brought_back": [str(each) for each in back],
        "items": items,
    }


def _comes_back(item: Record, going: set[str]) -> bool:
    replaced = item.get("replaced")
    return replaced is not None and replaced["state"] == "superseded" and replaced["id"] not in going


def describe(item: RunItem, *, include_corroborated: bool = False) -> dict[str, Any]:
    """Return an item as answers have it."""
    effect, reason = item.effect(include_corroborated=include_corroborated)
    record = item.record
    shown = {name: record[name] for name in ("subject", "predicate", "content", "scope") if record[name] is not None}
    replaced = item.replaced
    return {
        "change": item.change,
        "memory_type": item.memory_type.value,
        "id": str(item.id),
        **shown,
        "state": record["state"] or "erased",
        "effect": effect,
        **({"reason": reason} if reason else {}),
        **({"replaced": {**replaced, "id": str(replaced["id"])}} if replaced else {}),
        "evidence": [str(each) for each in item.evidence],
    }


async def accept(memory: Memory, caller: Caller, run_id: UUID, request: Request) -> Answer:
    """Record that a person looked at every live memory that a run made; their confidence stays."""

    async def work(tx: Connection) -> Answer:
        items = (await _diff(tx, caller, run_id)).items
        looked = [each for each in items if each.change != "confirmed" and each.is_live]
        if not looked:
            raise NotFound("the run made nothing that is live", hint="There is nothing to accept.")
        await events.append(
            tx, caller, *(Event(f"{each.memory_type}_looked_at", each.memory_type, each.id) for each in looked)
        )
        return {"run_id": str(run_id), "looked_at": len(looked)}

    return await run_once(memory.transaction(caller), caller, request, work)


def seconds_of(run: Record) -> float | None:
    """Return how long a run took; None while it runs."""
    started: datetime = run["started_at"]
    return (run["finished_at"] - started).total_seconds() if run["finished_at"] else None
