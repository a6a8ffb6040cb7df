"""Whether two rules say the same. By their words alone: to an embedding, "before" and "after" are next to equal."""

import unicodedata

_AROUND = ".,;:!?\"'()[]{}*_~`\u2026\u201c\u201d\u201e\u2018\u00ab\u00bb"
_PLAIN = str.maketrans({"\u2019": "'", "_": " ", ",": " ", "\u2014": " "})
_ARTICLES = frozenset({"a", "an", "the", "please"})
# What changes nothing about advice, unless it is advice against something: not all is not the same as not any.
_FILLERS = frozenset({"any", "all", "always", "make", "makes", "sure", "to", "you", "should", "must"})
_NEGATIONS = frozenset({"not", "no", "never", "none", "nobody", "nothing", "without", "avoid", "cannot"})
_TELLING = frozenset("LMNS")
_SHORTEST_PLURAL = 4


def fingerprint(rule: str) -> tuple[str, ...]:
    """The words that make a rule what it is, in their order: without case, punctuation, fillers and plurals.

    Numbers, signs and symbols stay as they are. Two rules that only might say the same have two essences.
    """
    text = unicodedata.normalize("NFKC", rule).casefold().translate(_PLAIN)
    words = [word for word in (each.strip(_AROUND) for each in text.split()) if _tells(word)]
    against = any(word in _NEGATIONS or word.endswith("n't") for word in words)
    fillers = _ARTICLES if against else _ARTICLES | _FILLERS
    telling = [word for place, word in enumerate(words) if word not in fillers or _names(words, place)]
    return tuple(_singular(word) for word in telling or words)


def _tells(word: str) -> bool:
    return any(unicodedata.category(each)[0] in _TELLING for each in word)


def _names(words: list[str], place: int) -> bool:
    """Whether a single letter stands at the end: plan A is not any plan."""
    return place == len(words) - 1 and len(words[place]) == 1 and len(words) > 1


def _singular(word: str) -> str:
    plural = len(word) >= _SHORTEST_PLURAL and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if plural else word
