"""Memory: what makes a butler's sessions remember."""

from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.module import MemoryModule

__all__ = ["MemoryModule", "MemoryModuleConfig"]
