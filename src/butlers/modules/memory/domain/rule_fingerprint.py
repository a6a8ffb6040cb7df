"""Fingerprint of a rule's wording, to find duplicates.

It compares words, because embeddings hardly tell "before" from "after".
"""

import unicodedata

_PUNCTUATION = ".,;:!?\"'()[]{}*_~`\u2026\u201c\u201d\u201e\u2018\u00ab\u00bb"
_REPLACEMENTS = str.maketrans({"\u2019": "'", "_": " ", ",": " ", "\u2014": " "})
_ARTICLES = frozenset({"a", "an", "the", "please"})
# Words that change nothing, except in a negated rule: "not all" differs from "not any".
_FILLERS = frozenset({"any", "all", "always", "make", "makes", "sure", "to", "you", "should", "must"})
_NEGATIONS = frozenset({"not", "no", "never", "none", "nobody", "nothing", "without", "avoid", "cannot"})
# Letters, marks, numbers and symbols.
_SIGNIFICANT_CATEGORIES = frozenset("LMNS")
_MIN_PLURAL_LENGTH = 4


def fingerprint(rule: str) -> tuple[str, ...]:
    """The significant words of a rule in order, without case, punctuation, fillers and plurals.

    Numbers, signs and symbols stay. Rules of doubtful equality get different fingerprints.
    """
    text = unicodedata.normalize("NFKC", rule).casefold().translate(_REPLACEMENTS)
    words = [word for word in (each.strip(_PUNCTUATION) for each in text.split()) if _is_significant(word)]
    is_negated = any(word in _NEGATIONS or word.endswith("n't") for word in words)
    fillers = _ARTICLES if is_negated else _ARTICLES | _FILLERS
    kept = [word for index, word in enumerate(words) if word not in fillers or _is_final_letter(words, index)]
    return tuple(_singular(word) for word in kept or words)


def _is_significant(word: str) -> bool:
    return any(unicodedata.category(char)[0] in _SIGNIFICANT_CATEGORIES for char in word)


def _is_final_letter(words: list[str], index: int) -> bool:
    """Whether the word is a single letter at the end, as in "plan A", where it is not an article."""
    return index == len(words) - 1 and len(words[index]) == 1 and len(words) > 1


def _singular(word: str) -> str:
    is_plural = len(word) >= _MIN_PLURAL_LENGTH and word.isalpha() and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if is_plural else word
