"""Which words of a question are worth looking up, and how much each of them says."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

MOST_WORDS = 64
RANKED_AT_MOST = 500
ENOUGH = 200
RARE = 1 / 400
"""The share of memories a word is taken to stand in that too few of a sample have for it to be counted."""
TELLING = 8
"""Whoever has as much as this many of a question's most telling words has all it asks for."""
LONGEST_PLAIN_QUESTION = 600
"""Questions up to this long are asked with all their words in a small tenant."""


def rarest(words: Sequence[str], frequencies: Mapping[str, float], size: int, depth: int) -> list[str]:
    """The rarer words, as many as bring enough matches; the commonest are let go once enough remain.

    `frequencies` has the share of memories each common word stands in; a word it does not know is rare.
    """
    enough, expected = max(2 * depth, ENOUGH), 0.0
    picked: list[str] = []
    for word in sorted(words, key=lambda each: frequencies.get(each, 0.0))[:MOST_WORDS]:
        matches = frequencies.get(word, 0.0) * size
        if picked and expected >= enough and expected + matches > RANKED_AT_MOST:
            break
        picked.append(word)
        expected += matches
    return picked


class Telling(NamedTuple):
    """How much each word of a question says, and how much of that a memory has to have to have it all."""

    weights: Mapping[str, float]
    whole: float

    def coverage(self, found: Iterable[str]) -> float:
        """How much of the question the words found in a memory are, from 0 to 1."""
        return min(1.0, sum(self.weights[word] for word in found) / self.whole) if self.whole else 0.0


def telling(words: Collection[str], frequencies: Mapping[str, float]) -> Telling:
    """The fewer memories a word stands in, the more it says; one that stands in all of them says nothing."""
    shares = {word: min(1.0, frequencies.get(word, RARE)) for word in words}
    rarest_first = sorted(shares, key=shares.__getitem__)[:MOST_WORDS]
    weights = {word: -math.log(shares[word]) for word in rarest_first}
    return Telling(weights, sum(weights[word] for word in rarest_first[:TELLING]))
