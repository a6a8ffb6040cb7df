"""The memories that a bulk form means with "all that match": those of the list it was sent from."""

from uuid import UUID

from butlers.dashboard.listing import ListQuery
from butlers.dashboard.page import Page
from butlers.dashboard.pages import episode_list, fact_list, rule_list
from butlers.modules.memory.domain.model import MemoryType
from butlers.modules.memory.operations import viewing_lists
from butlers.modules.memory.operations.bulk import MAX_MEMORIES


async def select_all(page: Page, memory_type: MemoryType, filter_text: str) -> list[UUID]:
    """Return the ids of all memories that a list with this query shows, up to one more than an act may change."""
    max_rows = MAX_MEMORIES + 1
    if memory_type is MemoryType.EPISODE:
        query = ListQuery.parse(page, "/episodes", filter_text, **episode_list.LABELS)
        wanted = episode_list.episode_filter(query)
        return await viewing_lists.matching_episode_ids(page.memory, page.caller, wanted, max_rows)
    is_fact = memory_type is MemoryType.FACT
    labels = fact_list.LABELS if is_fact else rule_list.LABELS
    query = ListQuery.parse(page, f"/{memory_type}s", filter_text, **labels)
    make_filter = fact_list.fact_filter if is_fact else rule_list.rule_filter
    return await viewing_lists.matching_ids(page.memory, page.caller, make_filter(query), max_rows)
