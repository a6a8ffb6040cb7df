"""Vectors of the embedding engine compared with those of sentence-transformers."""

import json
from pathlib import Path

import pytest

from butlers.modules.memory.embedding import EmbeddingEngine

REFERENCE = json.loads((Path(__file__).parent / "reference_vectors.json").read_text(encoding="utf-8"))


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / (sum(x * x for x in a) ** 0.5 * sum(y * y for y in b) ** 0.5)


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["text"][:30])
async def test_a_vector_agrees_with_the_reference(engine: EmbeddingEngine, row):
    assert cosine(await engine.embed(row["text"]), row["vector"]) >= 0.9999


async def test_a_batch_gives_the_same_vectors_as_single_texts(engine: EmbeddingEngine):
    vectors = await engine.embed_batch([row["text"] for row in REFERENCE])
    assert all(cosine(vector, row["vector"]) >= 0.9999 for vector, row in zip(vectors, REFERENCE, strict=True))
