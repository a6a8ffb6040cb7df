"""Which words of a question are worth looking up, and how much each of them says."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import accumulate, combinations
from typing import NamedTuple, TypeVar

T = TypeVar("T")

MAX_TERMS = 256
"""Words that are looked up of a very long question: the first ones."""
MAX_RANKED_ROWS = 500
MIN_EXPECTED_ROWS = 200
MAX_PAIRED_TERMS = 5
"""How many of the common words are looked up in pairs."""
MAX_WEIGHTED_TERMS = 8
"""Whoever has as much as this many of a question's most telling words has all it asks for."""
MAX_SHORT_QUESTION = 600
"""Questions up to this long are asked with all their words in a small tenant."""


class TermSelection(NamedTuple):
    """What is looked up: rare words alone, common ones two at a time, the reserve where these bring too little."""

    single: Sequence[str] | None
    pairs: Sequence[tuple[str, str]] = ()
    fallback: Sequence[str] = ()


ALL_TERMS = TermSelection(single=None)
"""Every word of the question."""


def select_terms(words: Sequence[str], frequencies: Mapping[str, float], size: int, depth: int) -> TermSelection:
    """The words worth looking up in so many memories: everything they match is ranked, one by one.

    `frequencies` has the share of memories each common word stands in; a word it does not know is rare.
    """

    def matches(word: str) -> float:
        return frequencies.get(word, 0.0) * size

    def together(pair: tuple[str, str]) -> float:
        return matches(pair[0]) * matches(pair[1]) / size

    known = sorted(words, key=matches)[:MAX_TERMS]
    alone = _take_while_within(known, matches, MAX_RANKED_ROWS)
    expected, common = sum(map(matches, alone)), known[len(alone) :]
    if not common or expected >= max(2 * depth, MIN_EXPECTED_ROWS):
        return TermSelection(alone)
    pairs = sorted(combinations(common[:MAX_PAIRED_TERMS], 2), key=together)
    return TermSelection(alone, _take_while_within(pairs, together, MAX_RANKED_ROWS - expected), common[:1])


def _take_while_within(ordered: Sequence[T], matches: Callable[[T], float], most: float) -> list[T]:
    """As many from the front as bring no more than that in all."""
    totals = accumulate(map(matches, ordered))
    return [each for each, total in zip(ordered, totals, strict=True) if total <= most]


class TermWeights(NamedTuple):
    """How much each word of a question says, and how much of that a memory has to have to have it all."""

    weights: Mapping[str, float]
    whole: float

    def coverage(self, found: Iterable[str]) -> float:
        """How much of the question the words found in a memory are, from 0 to 1."""
        return min(1.0, sum(self.weights[word] for word in found) / self.whole) if self.whole else 0.0


def term_weights(words: Collection[str], found: Sequence[Collection[str]]) -> TermWeights:
    """The fewer of the memories that were found have a word, the more it says; `found` is what each of them has."""
    times = Counter(word for each in found for word in each)
    weights = {word: -math.log((times[word] + 0.5) / (len(found) + 1)) for word in words}
    return TermWeights(weights, sum(nlargest(MAX_WEIGHTED_TERMS, weights.values())))
