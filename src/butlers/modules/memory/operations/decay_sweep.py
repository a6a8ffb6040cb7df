"""Decay sweep: facts and rules without confirmation fade and expire, and harmful rules become anti-patterns."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from uuid import UUID

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.errors import Unavailable
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.batching import Progress, callers_by_tenant, no_progress, retry_when_busy
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.rule_inversion import invert_rules
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import decay_sweep, rule_inversion
from butlers.modules.memory.store.decay_sweep import MIN_ID, SweepPage, Thresholds

ACTOR = "sweep"
PAGE_SIZE = 1_000
MIN_EXPIRY_ALLOWANCE = 100
"""Memories a sweep may always expire: `max_expired_share` of a small tenant is close to zero."""
KINDS = (MemoryType.FACT, MemoryType.RULE)


@dataclass(slots=True)
class SweepReport:
    """Counts of a sweep."""

    tenants: int = 0
    facts_seen: int = 0
    facts_fading: int = 0
    facts_recovered: int = 0
    facts_expired: int = 0
    rules_seen: int = 0
    rules_fading: int = 0
    rules_recovered: int = 0
    rules_forgotten: int = 0
    rules_inverted: int = 0
    held_back: int = 0

    def add(self, kind: MemoryType, page: SweepPage) -> None:
        """Add the counts of one page."""
        end_state = "expired" if kind is MemoryType.FACT else "forgotten"
        counts = {"seen": page.seen, "fading": page.fading, "recovered": page.recovered, end_state: page.expired}
        for name, count in counts.items():
            field = f"{kind}s_{name}"
            setattr(self, field, getattr(self, field) + count)
        self.held_back += page.held_back

    @property
    def seen(self) -> int:
        """Memories visited."""
        return self.facts_seen + self.rules_seen


async def sweep(
    memory: Memory,
    caller: Caller,
    *,
    all_tenants: bool = False,
    capped: bool = True,
    progress: Progress = no_progress,
) -> Answer:
    """Sweep the caller's tenant, or all of them; return the counts and a warning for each tenant over the cap.

    Raises `Unavailable` at the end when harmful rules could not be embedded.
    """
    report, warnings, unavailable = SweepReport(), list[str](), None
    callers = await callers_by_tenant(memory, caller, all_tenants=all_tenants)
    planned = await preview(memory, caller, all_tenants=all_tenants)
    total = planned["facts_seen"] + planned["rules_seen"]
    for each in callers:
        try:
            report.rules_inverted += await invert_rules(memory, each)
        except Unavailable as fault:
            # Fading needs no embedding model, so the sweep goes on.
            unavailable = fault
        before = report.held_back
        for kind in KINDS:
            async for page in _sweep_pages(memory, each, kind, capped=capped):
                report.add(kind, page)
                progress(report.seen, total)
        if report.held_back > before:
            warnings.append(_cap_warning(memory, each, report.held_back - before))
        report.tenants += 1
    if unavailable is not None:
        raise unavailable
    return {"dry_run": False, **asdict(report), "warnings": warnings}


async def preview(memory: Memory, caller: Caller, *, all_tenants: bool = False) -> Answer:
    """Return the counts a sweep without its cap would have; nothing changes."""
    report = SweepReport()
    for each in await callers_by_tenant(memory, caller, all_tenants=all_tenants):
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            for kind in KINDS:
                report.add(kind, await decay_sweep.preview_sweep(tx, each, kind, _thresholds(memory)))
            report.rules_inverted += len(await rule_inversion.rules_to_invert(tx, each, MIN_ID, PAGE_SIZE))
        report.tenants += 1
    return {"dry_run": True, **asdict(report), "warnings": []}


def _thresholds(memory: Memory) -> Thresholds:
    return Thresholds(memory.config.confidence.fading_below, memory.config.confidence.expired_below)


async def _sweep_pages(memory: Memory, caller: Caller, kind: MemoryType, *, capped: bool) -> AsyncIterator[SweepPage]:
    """Sweep one tenant's memories of one type; each page is one transaction."""
    allowance = await _expiry_allowance(memory, caller, kind) if capped else 2**31
    after, seen = MIN_ID, PAGE_SIZE
    while seen == PAGE_SIZE:
        page = await retry_when_busy(_sweep_page, memory, caller, kind, after, allowance)
        yield page
        allowance -= page.expired
        after, seen = page.last, page.seen


async def _sweep_page(memory: Memory, caller: Caller, kind: MemoryType, after: UUID, may_expire: int) -> SweepPage:
    # Not durable: the next sweep repeats what a crash loses.
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        return await decay_sweep.sweep_page(tx, caller, kind, after, PAGE_SIZE, _thresholds(memory), may_expire)


async def _expiry_allowance(memory: Memory, caller: Caller, kind: MemoryType) -> int:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        live = await decay_sweep.count_live(tx, caller, kind)
    return max(MIN_EXPIRY_ALLOWANCE, int(live * memory.config.confidence.max_expired_share))


def _cap_warning(memory: Memory, caller: Caller, held_back: int) -> str:
    share = memory.config.confidence.max_expired_share
    warning = (
        f"{held_back} memories of {caller.tenant} are due to expire, more than {share:.0%} of all at once: "
        "they fade instead. Check the clock of the database server. "
        "If it is right, `butlers memory sweep DIR --no-cap` expires them."
    )
    memory.warn(warning)
    return warning
