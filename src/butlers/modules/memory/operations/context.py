"""Context block a session starts with. Building it writes nothing, so the same memories give the same block."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from butlers.caller import Caller
from butlers.errors import Unavailable
from butlers.modules.memory.domain.context_block import (
    CHARACTERS_PER_TOKEN,
    Line,
    Section,
    episode_line,
    fact_line,
    render_context,
    rule_line,
)
from butlers.modules.memory.domain.model import MAX_SCOPE_CHARACTERS, MemoryType, SearchMode, validate_short_text
from butlers.modules.memory.domain.ranking import Candidate
from butlers.modules.memory.domain.text import validate_query
from butlers.modules.memory.operations.reading import embed_query, rank_for_recall
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import episodes, memories

MAX_RECALLED = 20
MAX_EPISODES = 20

Row = Mapping[str, Any]


async def build_context(
    memory: Memory, caller: Caller, trigger_prompt: str, butler: str, token_budget: int | None
) -> str:
    """Return the facts, rules and recent episodes that matter for this prompt, within the token budget."""
    butler = memory.check_butler(caller, validate_short_text("butler", butler, MAX_SCOPE_CHARACTERS))
    query = validate_query(trigger_prompt, "trigger_prompt")
    embedding, mode = await embed_query(memory, caller, query, SearchMode(memory.config.retrieval.recall_mode))
    kinds = (MemoryType.FACT, MemoryType.RULE)
    budget = token_budget or memory.config.retrieval.context_token_budget
    # A content over this length can't fit. It is left out before anything reads it: a memory may hold a megabyte.
    max_characters = budget * CHARACTERS_PER_TOKEN
    async with memory.read_transaction(caller) as tx:
        scored = (await rank_for_recall(memory, tx, caller, query, embedding, mode, butler, kinds))[:MAX_RECALLED]
        ids = [each.candidate.id for each in scored]
        rows = await memories.fetch_many(tx, caller, ids, max_characters + 1)
        recent = await episodes.recent(tx, caller, butler, MAX_EPISODES, max_characters + 1)
    fitting = [
        (each.candidate, row) for each in scored if len((row := rows[each.candidate.id])["content"]) <= max_characters
    ]
    recent = [row for row in recent if len(row["content"]) <= max_characters]
    # In a thread: escaping and counting takes milliseconds, or a second for the largest budget.
    return await memory.rendering.run(caller.tenant, partial(_render, memory, fitting, recent, budget))


def _render(memory: Memory, scored: Sequence[tuple[Candidate, Row]], recent: Sequence[Row], budget: int) -> str:
    quotas = memory.config.retrieval.section_quotas
    episode_lines = [_line(row, episode_line, row["content"], row["created_at"]) for row in recent]
    sections = (
        Section("Key Facts", _fact_lines(scored), quotas.facts),
        Section("Active Rules", _rule_lines(scored), quotas.rules),
        Section("Recent Episodes", episode_lines, quotas.episodes),
    )
    try:
        return render_context(sections, budget, memory.embedder.count_tokens)
    except Unavailable:
        # Without the tokenizer each byte counts as a token, so the block never exceeds the budget.
        return render_context(sections, budget, lambda text: len(text.encode()))


def _line(row: Row, write: Callable[..., str], *arguments: Any) -> Line:
    return Line(len(row["content"]), partial(write, *arguments))


def _fact_lines(scored: Sequence[tuple[Candidate, Row]]) -> list[Line]:
    return [
        _line(row, fact_line, row["subject"], row["predicate"], row["content"], candidate.confidence or 0.0)
        for candidate, row in scored
        if candidate.memory_type is MemoryType.FACT
    ]


def _rule_lines(scored: Sequence[tuple[Candidate, Row]]) -> list[Line]:
    return [
        _line(row, rule_line, row["content"], row["maturity"], row["effectiveness_score"])
        for candidate, row in scored
        if candidate.memory_type is MemoryType.RULE
    ]
