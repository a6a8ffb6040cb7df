"""Whether two rules say the same. By their words alone: to an embedding, "before" and "after" are next to equal."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
# What changes nothing about advice. Never and not are no such words.
_FILLERS = frozenset(
    {"a", "an", "the", "any", "all", "always", "please", "make", "sure", "to", "you", "should", "must"}
)
_SHORTEST_PLURAL = 4


def essence(rule: str) -> tuple[str, ...]:
    """The words that make a rule what it is, in their order: without case, punctuation, fillers and plurals."""
    words = _WORD.findall(unicodedata.normalize("NFKC", rule).casefold())
    telling = tuple(_singular(word) for word in words if word not in _FILLERS)
    return telling or tuple(words)


def _singular(word: str) -> str:
    plural = len(word) >= _SHORTEST_PLURAL and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word
