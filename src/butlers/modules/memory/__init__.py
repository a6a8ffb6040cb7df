"""The memory module: episodes, facts, rules and entities."""

from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.module import MemoryModule

__all__ = ["MemoryModule", "MemoryModuleConfig"]
