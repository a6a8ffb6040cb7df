"""Time at work: what nobody confirms fades, recovers or is let go, and rules that did harm become warnings."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from butlers.caller import Caller
from butlers.db import WORK_SECONDS
from butlers.errors import Unavailable
from butlers.modules.memory.domain.maturity import inverted
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations.once import Answer
from butlers.modules.memory.operations.patience import patiently
from butlers.modules.memory.operations.tenants import inside_each
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import events, sweeps
from butlers.modules.memory.store.events import Event
from butlers.modules.memory.store.sweeps import FIRST, Harmful, Page, Thresholds
from butlers.modules.memory.store.versions import Embedded

ACTOR = "sweep"
PAGE = 1_000
INVERTED_AT_ONCE = 50
ALWAYS_ALLOWED = 100
"""So many may be let go in any case: a share of a small memory is next to nothing."""
KINDS = (MemoryType.FACT, MemoryType.RULE)

Tell = Callable[[int, int], None]


@dataclass(slots=True)
class Swept:
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

    def add(self, kind: MemoryType, page: Page) -> None:
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
    swept, warnings, missing = Swept(), list[str](), None
    callers = await inside_each(memory, caller, everywhere=everywhere)
    total = sum([await _fleeting(memory, each) for each in callers])
    for each in callers:
        try:
            swept.rules_inverted += await invert(memory, each)
        except Unavailable as fault:
            # Fading needs no model: it goes on, and the missing one is told at the end.
            missing = fault
        before = swept.held_back
        for kind in KINDS:
            await _swept(memory, each, kind, swept, capped=capped, tell=lambda: tell(swept.seen, total))
        if held := swept.held_back - before:
            warnings.append(_warning(memory, each, held))
        swept.tenants += 1
    if missing is not None:
        raise missing
    return {"dry_run": False, **asdict(swept), "warnings": warnings}


async def preview(memory: Memory, caller: Caller, *, everywhere: bool = False) -> Answer:
    """What a sweep would do without its cap; nothing changes."""
    swept = Swept()
    for each in await inside_each(memory, caller, everywhere=everywhere):
        async with memory.transaction(each, seconds=WORK_SECONDS) as tx:
            for kind in KINDS:
                swept.add(kind, await sweeps.would_sweep(tx, each, kind, _thresholds(memory)))
            swept.rules_inverted += len(await sweeps.to_invert(tx, each, FIRST, PAGE))
        swept.tenants += 1
    return {"dry_run": True, **asdict(swept), "warnings": []}


def _thresholds(memory: Memory) -> Thresholds:
    return Thresholds(memory.config.confidence.fading_below, memory.config.confidence.expired_below)


async def _fleeting(memory: Memory, caller: Caller) -> int:
    """How many memories a sweep looks at: the others don't fade."""
    async with memory.transaction(caller, seconds=WORK_SECONDS) as tx:
        return sum([(await sweeps.would_sweep(tx, caller, kind, _thresholds(memory))).seen for kind in KINDS])


async def _swept(
    memory: Memory, caller: Caller, kind: MemoryType, swept: Swept, *, capped: bool, tell: Callable[[], None]
) -> None:
    """One tenant's memories of one kind, page after page; each page is a transaction of its own."""
    allowance = await _allowance(memory, caller, kind) if capped else 2**31
    after = FIRST
    while True:
        page = await patiently(_page, memory, caller, kind, after, allowance)
        swept.add(kind, page)
        allowance -= page.expired
        tell()
        if page.seen < PAGE:
            return
        after = page.last


async def _page(memory: Memory, caller: Caller, kind: MemoryType, after: Any, may_expire: int) -> Page:
    # A sweep that is lost in a crash is made again by the next: it need not wait for the disk.
    async with memory.database.transaction(caller, seconds=WORK_SECONDS, durable=False) as tx:
        return await sweeps.sweep(tx, caller, kind, after, PAGE, _thresholds(memory), may_expire)


async def _allowance(memory: Memory, caller: Caller, kind: MemoryType) -> int:
    async with memory.transaction(caller, seconds=WORK_SECONDS) as tx:
        live = await sweeps.live(tx, caller, kind)
    return max(ALWAYS_ALLOWED, int(live * memory.config.confidence.max_expired_share))


def _warning(memory: Memory, caller: Caller, held_back: int) -> str:
    share = memory.config.confidence.max_expired_share
    said = (
        f"{held_back} memories of {caller.tenant} are believed so little that they would be let go, more than "
        f"{share:.0%} of all at once: they fade instead. Is the database server's clock right? "
        "If so, `butlers memory sweep DIR --no-cap` lets them go."
    )
    memory.warn(said)
    return said


async def invert(memory: Memory, caller: Caller) -> int:
    """Turn the tenant's rules that need it into warnings; how many there were."""
    after, turned = FIRST, 0
    while True:
        async with memory.transaction(caller) as tx:
            harmful = await sweeps.to_invert(tx, caller, after, INVERTED_AT_ONCE)
        if not harmful:
            return turned
        warnings = [inverted(rule.content, rule.reasons) for rule in harmful]
        vectors = await memory.embedder.embed_batch(warnings)
        embedded = [Embedded(vector, memory.embedder.version.id) for vector in vectors]
        turned += await patiently(_inverted, memory, caller, list(zip(harmful, warnings, embedded, strict=True)))
        after = harmful[-1].id


async def _inverted(memory: Memory, caller: Caller, turns: Sequence[tuple[Harmful, str, Embedded]]) -> int:
    async with memory.writing(caller, seconds=WORK_SECONDS) as tx:
        done = [rule.id for rule, warning, each in turns if await sweeps.invert(tx, caller, rule, warning, each)]
        told = (Event("rule_inverted", MemoryType.RULE, each, {"maturity": "anti_pattern"}) for each in done)
        await events.append(tx, caller, *told)
    return len(done)
