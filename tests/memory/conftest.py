"""A memory on a database of its own, with the real model."""

from pathlib import Path

import pytest

from butlers.modules.memory.embedding import EmbeddingEngine, get_embedding_engine


@pytest.fixture(scope="session")
def engine(home: Path) -> EmbeddingEngine:
    """The real embedding engine."""
    return get_embedding_engine(home)
