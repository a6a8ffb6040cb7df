"""Term selection and inverse document frequency weights for keyword search."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate, combinations
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MAX_TERMS = 256
"""Terms of a query that are looked up and weighed: the rarest."""
MAX_EXPECTED_ROWS = 1_000
"""Expected matches of the terms that are looked up: each match is ranked."""
MAX_PAIRED_TERMS = 5
"""Common terms that are looked up in pairs."""
MAX_WEIGHTED_TERMS = 8
"""A memory with the weight of this many of the query's heaviest terms covers it completely."""


class TermShares(NamedTuple):
    """The share of memories that have each common term, and the share assumed for every other term."""

    shares: Mapping[str, float]
    other: float

    def of(self, term: str) -> float:
        """The share of a term."""
        return self.shares.get(term, self.other)


class TermSelection(NamedTuple):
    """The terms to look up: rare ones alone, common ones in pairs, and fallback terms if these find too little."""

    single: Sequence[str]
    pairs: Sequence[tuple[str, str]] = ()
    fallback: Sequence[str] = ()


def select_terms(words: Sequence[str], shares: TermShares, size: int) -> TermSelection:
    """The terms to look up among `size` memories, within the budget of expected rows."""

    def expected_rows(word: str) -> float:
        return shares.of(word) * size

    def expected_pair_rows(pair: tuple[str, str]) -> float:
        return shares.of(pair[0]) * shares.of(pair[1]) * size

    rarest = sorted(words, key=expected_rows)[:MAX_TERMS]
    if size <= MAX_EXPECTED_ROWS:
        return TermSelection(rarest)
    alone = _take_while_within(rarest, expected_rows, MAX_EXPECTED_ROWS)
    left, common = MAX_EXPECTED_ROWS - sum(map(expected_rows, alone)), rarest[len(alone) :]
    pairs = sorted(combinations(common[:MAX_PAIRED_TERMS], 2), key=expected_pair_rows)
    return TermSelection(alone, _take_while_within(pairs, expected_pair_rows, left), common[:1])


def _take_while_within(ordered: Sequence[T], expected_rows: Callable[[T], float], limit: float) -> list[T]:
    """The first items whose expected rows add up to no more than `limit`."""
    totals = accumulate(map(expected_rows, ordered))
    return [each for each, total in zip(ordered, totals, strict=True) if total <= limit]


def term_weights(words: Sequence[str], types: Collection[tuple[int, TermShares]]) -> dict[str, float]:
    """The weight of each term of a query: its inverse document frequency, as a share of a full coverage.

    `types` has the number of memories in scope and the shares of terms for each memory type that is searched.
    """
    total = sum(size for size, _ in types)

    def inverse_frequency(word: str) -> float:
        having = sum(size * shares.of(word) for size, shares in types)
        return math.log((total + 1) / (having + 0.5))

    weights = {word: inverse_frequency(word) for word in words[:MAX_TERMS]}
    full = sum(nlargest(MAX_WEIGHTED_TERMS, weights.values()))
    return {word: weight / full for word, weight in weights.items()} if full else {}
