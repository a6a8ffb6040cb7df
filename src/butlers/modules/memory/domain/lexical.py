"""Term selection and inverse document frequency weights for keyword search."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate, combinations
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MAX_TERMS = 256
"""Terms of a query that are looked up: the rarest."""
MAX_RANKED_ROWS = 500
MIN_EXPECTED_ROWS = 200
MAX_PAIRED_TERMS = 5
"""Common terms that are looked up in pairs."""
MAX_WEIGHTED_TERMS = 8
"""A memory with the weight of this many of the query's heaviest terms covers it completely."""
MAX_SHORT_QUESTION = 600
"""Characters up to which a query keeps all its terms in a small tenant."""


class TermSelection(NamedTuple):
    """The terms to look up: rare ones alone, common ones in pairs, and fallback terms if these find too little."""

    single: Sequence[str] | None
    pairs: Sequence[tuple[str, str]] = ()
    fallback: Sequence[str] = ()


ALL_TERMS = TermSelection(single=None)
"""Every term of the query."""


def select_terms(words: Sequence[str], frequencies: Mapping[str, float], size: int, depth: int) -> TermSelection:
    """The terms to look up among `size` memories, limited because every match is ranked.

    `frequencies` has the share of memories that contain each common term; a term that is missing in it is rare.
    """

    def expected_rows(word: str) -> float:
        return frequencies.get(word, 0.0) * size

    def expected_pair_rows(pair: tuple[str, str]) -> float:
        return expected_rows(pair[0]) * expected_rows(pair[1]) / size

    rarest = sorted(words, key=expected_rows)[:MAX_TERMS]
    alone = _take_while_within(rarest, expected_rows, MAX_RANKED_ROWS)
    expected, common = sum(map(expected_rows, alone)), rarest[len(alone) :]
    if not common or expected >= max(2 * depth, MIN_EXPECTED_ROWS):
        return TermSelection(alone)
    pairs = sorted(combinations(common[:MAX_PAIRED_TERMS], 2), key=expected_pair_rows)
    return TermSelection(alone, _take_while_within(pairs, expected_pair_rows, MAX_RANKED_ROWS - expected), common[:1])


def _take_while_within(ordered: Sequence[T], expected_rows: Callable[[T], float], limit: float) -> list[T]:
    """The first items whose expected rows add up to no more than `limit`."""
    totals = accumulate(map(expected_rows, ordered))
    return [each for each, total in zip(ordered, totals, strict=True) if total <= limit]


class TermWeights(NamedTuple):
    """The weight of each term of a query, and the total that counts as full coverage."""

    weights: Mapping[str, float]
    full_weight: float

    def coverage(self, found: Iterable[str]) -> float:
        """The share of the query's weight that a memory with these terms has, from 0 to 1."""
        return min(1.0, sum(self.weights[word] for word in found) / self.full_weight) if self.full_weight else 0.0


def term_weights(words: Collection[str], found: Sequence[Collection[str]]) -> TermWeights:
    """The inverse document frequency of each term among the memories found; `found` has the terms of each of them."""
    counts = Counter(word for terms in found for word in terms)
    weights = {word: -math.log((counts[word] + 0.5) / (len(found) + 1)) for word in words}
    return TermWeights(weights, sum(nlargest(MAX_WEIGHTED_TERMS, weights.values())))
