"""Context block a session starts with. Building it writes nothing, so the same memories give the same block."""

import asyncio

from butlers.caller import Caller
from butlers.errors import Unavailable
from butlers.modules.memory.domain.context_block import (
    CHARACTERS_PER_TOKEN,
    Section,
    episode_line,
    fact_line,
    render_context,
    rule_line,
)
from butlers.modules.memory.domain.model import MAX_SCOPE_CHARACTERS, MemoryType, SearchMode, validate_short_text
from butlers.modules.memory.domain.text import validate_query
from butlers.modules.memory.operations.reading import embed_query, rank_for_recall
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import episodes, memories

MAX_RECALLED = 20
MAX_EPISODES = 20


async def build_context(
    memory: Memory, caller: Caller, trigger_prompt: str, butler: str, token_budget: int | None
) -> str:
    """Return the facts, rules and recent episodes that matter for this prompt, within the token budget."""
    butler = memory.check_butler(caller, validate_short_text("butler", butler, MAX_SCOPE_CHARACTERS))
    query = validate_query(trigger_prompt, "trigger_prompt")
    embedding, mode = await embed_query(memory, query, SearchMode(memory.config.retrieval.recall_mode))
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
    fact_lines = [
        fact_line(row["subject"], row["predicate"], row["content"], candidate.confidence or 0.0)
        for candidate, row in fitting
        if candidate.memory_type is MemoryType.FACT
    ]
    rule_lines = [
        rule_line(row["content"], row["maturity"], row["effectiveness_score"])
        for candidate, row in fitting
        if candidate.memory_type is MemoryType.RULE
    ]
    episode_lines = [
        episode_line(row["content"], row["created_at"]) for row in recent if len(row["content"]) <= max_characters
    ]
    quotas = memory.config.retrieval.section_quotas
    sections = (
        Section("Key Facts", fact_lines, quotas.facts),
        Section("Active Rules", rule_lines, quotas.rules),
        Section("Recent Episodes", episode_lines, quotas.episodes),
    )
    return await asyncio.to_thread(_render, memory, sections, budget)


def _render(memory: Memory, sections: tuple[Section, ...], budget: int) -> str:
    try:
        return render_context(sections, budget, memory.embedder.count_tokens)
    except Unavailable:
        # Without the tokenizer each byte counts as a token, so the block never exceeds the budget.
        return render_context(sections, budget, lambda text: len(text.encode()))
