"""The fixtures of the memory tests."""

from memory.conftest import archive, butler, caller, engine, loop, memory, place, stranger, tools

__all__ = ["archive", "butler", "caller", "engine", "loop", "memory", "place", "stranger", "tools"]
