"""Which words of a question are worth looking up, and how much each of them says."""

import math
from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest

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


def coverage(found: Collection[str], weights: Mapping[str, float]) -> float:
    """How much of a question the words found in a memory are, from 0 to 1."""
    whole = sum(nlargest(TELLING, weights.values()))
    return min(1.0, sum(weights[word] for word in found) / whole) if whole else 0.0


def weights(words: Collection[str], frequencies: Mapping[str, float]) -> dict[str, float]:
    """How much each word of a question says: the fewer memories it stands in, the more; in every one, nothing."""
    shares = {word: min(1.0, frequencies.get(word, RARE)) for word in words}
    return {word: -math.log(shares[word]) for word in sorted(shares, key=shares.__getitem__)[:MOST_WORDS]}
