"""The memory tools, as agents see them."""

from collections.abc import Mapping
from typing import Any

from butlers.contract import Tool
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.tools import (
    batch,
    consolidation,
    consolidation_runs,
    context,
    entities,
    feedback,
    hygiene,
    management,
    proposals,
    reading,
    receipts,
    retraction,
    undo,
    writing,
)

_MODULES = (
    writing,
    batch,
    reading,
    feedback,
    management,
    context,
    consolidation,
    consolidation_runs,
    proposals,
    retraction,
    undo,
    receipts,
    hygiene,
    entities,
)
TOOLS: tuple[Tool, ...] = tuple(tool for module in _MODULES for tool in module.TOOLS)


def configured_defaults(config: MemoryModuleConfig) -> dict[str, Mapping[str, Any]]:
    """The defaults that the configuration sets, by tool and argument."""
    retrieval = config.retrieval
    return {
        "memory_search": {
            "mode": retrieval.default_mode,
            "limit": retrieval.default_limit,
            "min_confidence": retrieval.min_confidence,
        },
        "memory_context": {"token_budget": retrieval.context_token_budget},
        "memory_run_episode_cleanup": {"max_entries": config.max_episodes},
    }
