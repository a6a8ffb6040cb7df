"""What every memory operation works with."""

from dataclasses import dataclass

from butlers.db import Database
from butlers.modules.memory.config import MemoryModuleConfig


@dataclass(frozen=True, slots=True)
class Memory:
    """One butler's memory."""

    database: Database
    config: MemoryModuleConfig
    butler: str
