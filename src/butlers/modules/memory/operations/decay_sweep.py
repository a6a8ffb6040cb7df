"""Time at work: what nobody confirms fades, recovers or is let go, and rules that did harm become warnings."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from butlers.caller import Caller
from butlers.db import WRITE_TIMEOUT_SECONDS
from butlers.errors import Unavailable
from butlers.modules.memory.domain.maturity import anti_pattern_content
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.idempotency import Answer
from butlers.modules.memory.operations.retry import retry_when_busy
from butlers.modules.memory.operations.tenants import callers_by_tenant
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import decay_sweep, events
from butlers.modules.memory.store.decay_sweep import MIN_ID, HarmfulRule, SweepPage, Thresholds
from butlers.modules.memory.store.embedding_versions import EmbeddedText
from butlers.modules.memory.store.events import Event

ACTOR = "sweep"
PAGE_SIZE = 1_000
INVERSION_BATCH = 50
MIN_EXPIRY_ALLOWANCE = 100
"""So many may be let go in any case: a share of a small memory is next to nothing."""
KINDS = (MemoryType.FACT, MemoryType.RULE)

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class SweepReport:
    """What a sweep did."""

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
        """Count one more page."""
        ended = "expired" if kind is MemoryType.FACT else "forgotten"
        counted = {"seen": page.seen, "fading": page.fading, "recovered": page.recovered, ended: page.expired}
        for name, count in counted.items():
            field = f"{kind}s_{name}"
            setattr(self, field, getattr(self, field) + count)
        self.held_back += page.held_back

    @property
    def seen(self) -> int:
        """How many memories were looked at."""
        return self.facts_seen + self.rules_seen


async def sweep(
    memory: Memory, caller: Caller, *, everywhere: bool = False, capped: bool = True, tell: Tell = lambda _, __: None
) -> Answer:
    """Sweep the caller's tenant, or all of them; what was done, and a warning where the cap held something back."""
    swept, warnings, missing = SweepReport(), list[str](), None
    callers = await callers_by_tenant(memory, caller, everywhere=everywhere)
    total = sum([await _count_decaying(memory, each) for each in callers])
    for each in callers:
        try:
            swept.rules_inverted += await invert_rules(memory, each)
        except Unavailable as fault:
            # Fading needs no model: it goes on, and the missing one is told at the end.
            missing = fault
        before = swept.held_back
        for kind in KINDS:
            await _sweep_type(memory, each, kind, swept, capped=capped, tell=lambda: tell(swept.seen, total))
        if held := swept.held_back - before:
            warnings.append(_cap_warning(memory, each, held))
        swept.tenants += 1
    if missing is not None:
        raise missing
    return {"dry_run": False, **asdict(swept), "warnings": warnings}


async def preview(memory: Memory, caller: Caller, *, everywhere: bool = False) -> Answer:
    """What a sweep would do without its cap; nothing changes."""
    swept = SweepReport()
    for each in await callers_by_tenant(memory, caller, everywhere=everywhere):
        async with memory.transaction(each, seconds=WRITE_TIMEOUT_SECONDS) as tx:
            for kind in KINDS:
                swept.add(kind, await decay_sweep.preview_sweep(tx, each, kind, _thresholds(memory)))
            swept.rules_inverted += len(await decay_sweep.rules_to_invert(tx, each, MIN_ID, PAGE_SIZE))
        swept.tenants += 1
    return {"dry_run": True, **asdict(swept), "warnings": []}


def _thresholds(memory: Memory) -> Thresholds:
    return Thresholds(memory.config.confidence.fading_below, memory.config.confidence.expired_below)


async def _count_decaying(memory: Memory, caller: Caller) -> int:
    """How many memories a sweep looks at: the others don't fade."""
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        return sum([(await decay_sweep.preview_sweep(tx, caller, kind, _thresholds(memory))).seen for kind in KINDS])


async def _sweep_type(
    memory: Memory, caller: Caller, kind: MemoryType, swept: SweepReport, *, capped: bool, tell: Callable[[], None]
) -> None:
    """One tenant's memories of one kind, page after page; each page is a transaction of its own."""
    allowance = await _expiry_allowance(memory, caller, kind) if capped else 2**31
    after = MIN_ID
    while True:
        page = await retry_when_busy(_sweep_page, memory, caller, kind, after, allowance)
        swept.add(kind, page)
        allowance -= page.expired
        tell()
        if page.seen < PAGE_SIZE:
            return
        after = page.last


async def _sweep_page(memory: Memory, caller: Caller, kind: MemoryType, after: Any, may_expire: int) -> SweepPage:
    # A sweep that is lost in a crash is made again by the next: it need not wait for the disk.
    async with memory.database.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS, durable=False) as tx:
        return await decay_sweep.sweep_page(tx, caller, kind, after, PAGE_SIZE, _thresholds(memory), may_expire)


async def _expiry_allowance(memory: Memory, caller: Caller, kind: MemoryType) -> int:
    async with memory.transaction(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        live = await decay_sweep.count_live(tx, caller, kind)
    return max(MIN_EXPIRY_ALLOWANCE, int(live * memory.config.confidence.max_expired_share))


def _cap_warning(memory: Memory, caller: Caller, held_back: int) -> str:
    share = memory.config.confidence.max_expired_share
    said = (
        f"{held_back} memories of {caller.tenant} are believed so little that they would be let go, more than "
        f"{share:.0%} of all at once: they fade instead. Is the database server's clock right? "
        "If so, `butlers memory sweep DIR --no-cap` lets them go."
    )
    memory.warn(said)
    return said


async def invert_rules(memory: Memory, caller: Caller) -> int:
    """Turn the tenant's rules that need it into warnings; how many there were."""
    after, turned = MIN_ID, 0
    while True:
        async with memory.transaction(caller) as tx:
            harmful = await decay_sweep.rules_to_invert(tx, caller, after, INVERSION_BATCH)
        if not harmful:
            return turned
        warnings = [anti_pattern_content(rule.content, rule.reasons) for rule in harmful]
        vectors = await memory.embedder.embed_batch(warnings)
        embedded = [EmbeddedText(vector, memory.embedder.version.id) for vector in vectors]
        turned += await retry_when_busy(
            _write_inversions, memory, caller, list(zip(harmful, warnings, embedded, strict=True))
        )
        after = harmful[-1].id


async def _write_inversions(
    memory: Memory, caller: Caller, turns: Sequence[tuple[HarmfulRule, str, EmbeddedText]]
) -> int:
    async with memory.writing(caller, seconds=WRITE_TIMEOUT_SECONDS) as tx:
        done = [
            rule.id for rule, warning, each in turns if await decay_sweep.invert_rule(tx, caller, rule, warning, each)
        ]
        told = (Event("rule_inverted", MemoryType.RULE, each, {"maturity": "anti_pattern"}) for each in done)
        await events.append(tx, caller, *told)
    return len(done)
