"""The block of memories a session starts with. Reading it changes nothing, so that it reads the same again."""

import asyncio

from butlers.caller import Caller
from butlers.errors import Unavailable
from butlers.modules.memory.domain.briefing import Section, brief, episode_line, fact_line, rule_line
from butlers.modules.memory.domain.model import LONGEST_SCOPE, MemoryType, Mode, short_text
from butlers.modules.memory.domain.text import question
from butlers.modules.memory.operations.reading import embedded_question, recalled
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.store import episodes, memories

MOST_RECALLED = 20
MOST_EPISODES = 20


async def build(memory: Memory, caller: Caller, trigger_prompt: str, butler: str, token_budget: int | None) -> str:
    """What the butler knows that matters for this prompt, within the budget."""
    butler = memory.speaks_for(caller, short_text("butler", butler, LONGEST_SCOPE))
    asked = question(trigger_prompt, "trigger_prompt")
    embedding, mode = await embedded_question(memory, asked, Mode(memory.config.retrieval.recall_mode))
    kinds = (MemoryType.FACT, MemoryType.RULE)
    async with memory.reading(caller) as tx:
        scored = (await recalled(memory, tx, caller, asked, embedding, mode, butler, kinds))[:MOST_RECALLED]
        rows = await memories.show(
            tx,
            caller,
            facts=[each.candidate.id for each in scored if each.candidate.memory_type is MemoryType.FACT],
            rules=[each.candidate.id for each in scored if each.candidate.memory_type is MemoryType.RULE],
            episodes=[],
        )
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
    return await asyncio.to_thread(_brief, memory, sections, budget)


def _brief(memory: Memory, sections: tuple[Section, ...], budget: int) -> str:
    try:
        return brief(sections, budget, memory.embedder.count_tokens)
    except Unavailable:
        # Without the tokenizer every byte is charged: too little rather than too much.
        return brief(sections, budget, lambda text: len(text.encode()))
