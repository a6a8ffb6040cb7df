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

TOOLS: tuple[Tool, ...] = (
    *writing.TOOLS,
    *reading.TOOLS,
    *feedback.TOOLS,
    *management.TOOLS,
    *context.TOOLS,
    *consolidation.TOOLS,
    *retraction.TOOLS,
    *entities.TOOLS,
)
