"""Which words of a question are worth looking up."""

from collections.abc import Mapping, Sequence

MOST_WORDS = 64
RANKED_AT_MOST = 500
ENOUGH = 200
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
