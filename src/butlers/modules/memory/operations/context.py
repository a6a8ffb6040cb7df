"""The block of memories a session starts with. Reading it changes nothing, so that it reads the same again."""

import asyncio

from butlers.caller import Caller
from butlers.errors import Unavailable
from butlers.modules.memory.domain.context_block import Section, episode_line, fact_line, render_context, rule_line
from butlers.modules.memory.domain.model import MAX_SCOPE_CHARACTERS, MemoryType, SearchMode, validate_short_text
from butlers.modules.memory.domain.text import validate_query
from butlers.modules.memory.operations.reading import embed_query, rank_for_recall
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import episodes, memories

MOST_RECALLED = 20
MOST_EPISODES = 20


async def build_context(
    memory: Memory, caller: Caller, trigger_prompt: str, butler: str, token_budget: int | None
) -> str:
    """What the butler knows that matters for this prompt, within the budget."""
    butler = memory.speaks_for(caller, validate_short_text("butler", butler, MAX_SCOPE_CHARACTERS))
    asked = validate_query(trigger_prompt, "trigger_prompt")
    embedding, mode = await embed_query(memory, asked, SearchMode(memory.config.retrieval.recall_mode))
    kinds = (MemoryType.FACT, MemoryType.RULE)
    async with memory.reading(caller) as tx:
        scored = (await rank_for_recall(memory, tx, caller, asked, embedding, mode, butler, kinds))[:MOST_RECALLED]
        rows = await memories.fetch_many(tx, caller, [each.candidate.id for each in scored])
        recent = await episodes.recent(tx, caller, butler, MOST_EPISODES)
    facts = [
        fact_line(row["subject"], row["predicate"], row["content"], each.candidate.confidence or 0.0)
        for each in scored
        if (row := rows[each.candidate.id])["memory_type"] == MemoryType.FACT
    ]
    rules = [
        rule_line(row["content"], row["maturity"], row["effectiveness_score"])
        for each in scored
        if (row := rows[each.candidate.id])["memory_type"] == MemoryType.RULE
    ]
    happened = [episode_line(row["content"], row["created_at"]) for row in recent]
    quotas = memory.config.retrieval.section_quotas
    sections = (
        Section("Key Facts", facts, quotas.facts),
        Section("Active Rules", rules, quotas.rules),
        Section("Recent Episodes", happened, quotas.episodes),
    )
    budget = token_budget or memory.config.retrieval.context_token_budget
    return await asyncio.to_thread(_render, memory, sections, budget)


def _render(memory: Memory, sections: tuple[Section, ...], budget: int) -> str:
    try:
        return render_context(sections, budget, memory.embedder.count_tokens)
    except Unavailable:
        # Without the tokenizer every byte is charged: too little rather than too much.
        return render_context(sections, budget, lambda text: len(text.encode()))
