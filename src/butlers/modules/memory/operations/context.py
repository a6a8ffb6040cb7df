"""Context block a session starts with. Building it changes no memory, so the same memories give the same block."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from butlers.caller import Caller
from butlers.errors import Unavailable
from butlers.modules.memory.domain.context_block import (
    CHARACTERS_PER_TOKEN,
    ContextBlock,
    Line,
    Section,
    episode_line,
    fact_line,
    render_context,
    rule_line,
)
from butlers.modules.memory.domain.model import MAX_SCOPE_CHARACTERS, MemoryType, SearchMode, validate_short_text
from butlers.modules.memory.domain.ranking import ScoredMemory
from butlers.modules.memory.domain.receipt import Receipt, ReceiptLine, ReceiptSource, ToldOutcome
from butlers.modules.memory.domain.text import validate_query
from butlers.modules.memory.operations import receipts
from butlers.modules.memory.operations.reading import embed_query, rank_for_recall
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import memories

MAX_RECALLED = 20
MAX_EPISODES = 20

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What a block is made from: the best facts and rules, the others that were found, and recent episodes."""

    best: Sequence[ScoredMemory]
    others: Sequence[ScoredMemory]
    rows: Mapping[UUID, Row]
    """The rows of the best."""
    recent: Sequence[Row]

    def best_of(self, memory_type: MemoryType) -> list[tuple[int, ScoredMemory]]:
        """The best facts or rules, each with its rank among both."""
        return [(rank, each) for rank, each in enumerate(self.best, 1) if each.candidate.memory_type is memory_type]


async def build_context(
    memory: Memory, caller: Caller, trigger_prompt: str, butler: str, token_budget: int | None
) -> str:
    """Return the facts, rules and recent episodes that matter for this prompt, within the token budget.

    The caller's session gets a receipt of them.
    """
    butler = memory.check_butler(caller, validate_short_text("butler", butler, MAX_SCOPE_CHARACTERS))
    query = validate_query(trigger_prompt, "trigger_prompt")
    budget = token_budget or memory.config.retrieval.context_token_budget
    found = await _find_candidates(memory, caller, query, butler, budget)
    # In a thread: escaping and counting takes milliseconds, or a second for the largest budget.
    block = await memory.rendering.run(caller.tenant, partial(_render, memory, found, budget))
    receipts.record(memory, caller, _receipt(found, block, budget))
    return block.text


async def _find_candidates(memory: Memory, caller: Caller, query: str, butler: str, budget: int) -> Candidates:
    embedding, mode = await embed_query(memory, caller, query, SearchMode(memory.config.retrieval.recall_mode))
    kinds = (MemoryType.FACT, MemoryType.RULE)
    # A content over this length can't fit, and nothing reads it: a memory may hold a megabyte.
    max_characters = budget * CHARACTERS_PER_TOKEN + 1
    async with memory.read_transaction(caller) as tx:
        scored = await rank_for_recall(memory, tx, caller, query, embedding, mode, butler, kinds, MAX_RECALLED)
        ids = [each.candidate.id for each in scored[:MAX_RECALLED]]
        rows, recent = await memories.fetch_for_context(tx, caller, ids, butler, MAX_EPISODES, max_characters)
    # One that was erased in between has no row.
    best = [each for each in scored[:MAX_RECALLED] if each.candidate.id in rows]
    return Candidates(best, scored[MAX_RECALLED:], rows, recent)


def _render(memory: Memory, found: Candidates, budget: int) -> ContextBlock:
    quotas = memory.config.retrieval.section_quotas
    sections = (
        Section("Key Facts", _fact_lines(found), quotas.facts),
        Section("Active Rules", _rule_lines(found), quotas.rules),
        Section("Recent Episodes", _episode_lines(found), quotas.episodes),
    )
    try:
        return render_context(sections, budget, memory.embedder.count_tokens)
    except Unavailable:
        # Without the tokenizer each byte counts as a token, so the block never exceeds the budget.
        return render_context(sections, budget, lambda text: len(text.encode()))


def _line(row: Row, write: Callable[..., str], *arguments: Any) -> Line:
    return Line(len(row["content"]), partial(write, *arguments))


def _fact_lines(found: Candidates) -> list[Line]:
    lines = ((found.rows[each.candidate.id], each.candidate) for _, each in found.best_of(MemoryType.FACT))
    return [
        _line(row, fact_line, row["subject"], row["predicate"], row["content"], candidate.confidence or 0.0)
        for row, candidate in lines
    ]


def _rule_lines(found: Candidates) -> list[Line]:
    rows = (found.rows[each.candidate.id] for _, each in found.best_of(MemoryType.RULE))
    return [_line(row, rule_line, row["content"], row["maturity"], row["effectiveness_score"]) for row in rows]


def _episode_lines(found: Candidates) -> list[Line]:
    return [_line(row, episode_line, row["content"], row["created_at"]) for row in found.recent]


def _receipt(found: Candidates, block: ContextBlock, budget: int) -> Receipt:
    """The receipt of a block: the lines of its sections, and the facts and rules that were not among the best."""
    facts, rules, recent = (section.lines for section in block.sections)
    lines = [
        ReceiptLine(memory_type, each.candidate.id, rank, ToldOutcome(placed.outcome), each.score, placed.tokens)
        for memory_type, placed_lines in ((MemoryType.FACT, facts), (MemoryType.RULE, rules))
        for (rank, each), placed in zip(found.best_of(memory_type), placed_lines, strict=True)
    ]
    lines += [
        ReceiptLine(MemoryType.EPISODE, row["id"], rank, ToldOutcome(placed.outcome), tokens=placed.tokens)
        for rank, (row, placed) in enumerate(zip(found.recent, recent, strict=True), 1)
    ]
    lines += [
        ReceiptLine(each.candidate.memory_type, each.candidate.id, rank, ToldOutcome.BEYOND_BEST, each.score)
        for rank, each in enumerate(found.others, MAX_RECALLED + 1)
    ]
    return Receipt(ReceiptSource.CONTEXT, lines, block.tokens, budget)
