"""The same memory, tools and archive as the tests of memory have."""

from memory.conftest import archive, butler, caller, engine, loop, memory, place, stranger, tools

__all__ = ["archive", "butler", "caller", "engine", "loop", "memory", "place", "stranger", "tools"]
