"""The memory tools, as agents see them."""

from butlers.contract import Tool
from butlers.modules.memory.tools import (
    consolidation,
    context,
    entities,
    feedback,
    management,
    reading,
    retraction,
    writing,
)

_MODULES = (writing, reading, feedback, management, context, consolidation, retraction, entities)
TOOLS: tuple[Tool, ...] = tuple(tool for module in _MODULES for tool in module.TOOLS)
