"""Pairs of near vectors within groups, computed exactly."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BLOCK = 500
"""Rows of one matrix product: 500 by 3,000 similarities take 6 MB."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """A vector and its groups: only vectors of one group are compared, and of those only ones with one label.

    None is the label that goes with every other.
    """

    vector: Sequence[float]
    groups: Sequence[Hashable]
    label: Hashable | None


def nearest_pairs(items: Sequence[Comparable], min_similarity: float, limit: int) -> list[tuple[int, int, float]]:
    """The places of the most similar pairs with their cosine similarity, the most similar first."""
    if not items:
        return []
    import numpy as np

    vectors = np.array([each.vector for each in items], dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    codes: dict[Hashable, int] = {}
    labels = np.array([0 if each.label is None else codes.setdefault(each.label, len(codes) + 1) for each in items])
    groups: dict[Hashable, list[int]] = {}
    for place, each in enumerate(items):
        for group in each.groups:
            groups.setdefault(group, []).append(place)
    found = {
        (first, second): similarity
        for members in groups.values()
        if len(members) > 1
        for first, second, similarity in _pairs_of_group(vectors, labels, np.array(members), min_similarity, limit)
    }
    ranked = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [(first, second, similarity) for (first, second), similarity in ranked[:limit]]


def _pairs_of_group(
    vectors: "NDArray[np.float32]",
    labels: "NDArray[np.int64]",
    members: "NDArray[np.int64]",
    min_similarity: float,
    limit: int,
) -> list[tuple[int, int, float]]:
    import numpy as np

    found: list[tuple[int, int, float]] = []
    for start in range(0, len(members), _BLOCK):
        rows, others = members[start : start + _BLOCK], members[start:]
        similarities = vectors[rows] @ vectors[others].T
        # Each pair once, and few of them: everything else is asked of the near ones alone.
        first, second = np.nonzero(similarities >= min_similarity)
        is_once = first < second
        first, second = first[is_once], second[is_once]
        ours, theirs = labels[rows[first]], labels[others[second]]
        may_be_one = (ours == theirs) | (ours == 0) | (theirs == 0)
        first, second = first[may_be_one], second[may_be_one]
        values = similarities[first, second]
        best = np.argsort(-values, kind="stable")[:limit]
        found += zip(rows[first[best]].tolist(), others[second[best]].tolist(), values[best].tolist(), strict=True)
    return found
