"""Formats of other memory systems, each read as the same records without storing anything."""

from butlers.memory_formats.formats import AUTO, FORMAT_NAMES, FORMATS, MemoryFormat, find_format, read_records
from butlers.memory_formats.records import (
    ForeignEntity,
    ForeignEpisode,
    ForeignFact,
    ForeignLink,
    ForeignMemory,
    ForeignRecord,
    ForeignRule,
    LeftOut,
    Problem,
)
from butlers.memory_formats.source import Source, UnreadableSource

__all__ = [
    "AUTO",
    "FORMATS",
    "FORMAT_NAMES",
    "ForeignEntity",
    "ForeignEpisode",
    "ForeignFact",
    "ForeignLink",
    "ForeignMemory",
    "ForeignRecord",
    "ForeignRule",
    "LeftOut",
    "MemoryFormat",
    "Problem",
    "Source",
    "UnreadableSource",
    "find_format",
    "read_records",
]
