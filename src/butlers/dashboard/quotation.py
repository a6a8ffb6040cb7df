"""Choice of the sentence of an episode that a memory rests on."""

import re

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\w{3,}")
_MAX_CHARACTERS = 240


def best_sentence(text: str, about: str) -> str:
    """Return the sentence that shares the most words with a text; the first one if none does."""
    wanted = {word.lower() for word in _WORD.findall(about)}
    sentences = [each.strip() for each in _SENTENCE.split(text) if each.strip()] or [text]
    best = max(sentences, key=lambda each: len(wanted & {word.lower() for word in _WORD.findall(each)}))
    return best if len(best) <= _MAX_CHARACTERS else best[: _MAX_CHARACTERS - 1] + "…"
