"""Word diff of two texts."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

_WORD = re.compile(r"(?:\w+|[^\w\s])\s*")
_MAX_WORDS = 200
"""Longer changes are shown as a replacement: in the worst case the time grows with the cube of their length."""


class DiffPart(NamedTuple):
    """A piece of text that both texts have, or only one of them."""

    kind: Literal["same", "removed", "added"]
    text: str


def word_diff(old: str, new: str) -> list[DiffPart]:
    """Return the parts that lead from the old text to the new one, word by word."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    start = _common_length(before, after)
    end = _common_length(before[start:][::-1], after[start:][::-1])
    parts: list[tuple[str, Sequence[str]]] = [("same", after[:start])]
    parts += _changed(before[start : len(before) - end], after[start : len(after) - end])
    parts.append(("same", after[len(after) - end :]))
    return _join(parts)


def _common_length(before: Sequence[str], after: Sequence[str]) -> int:
    pairs = zip(before, after, strict=False)
    length = min(len(before), len(after))
    return next((place for place, (old, new) in enumerate(pairs) if old.strip() != new.strip()), length)


def _changed(before: Sequence[str], after: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    if max(len(before), len(after)) > _MAX_WORDS:
        return [("removed", before), ("added", after)]
    old, new = ([word.strip() for word in side] for side in (before, after))
    parts: list[tuple[str, Sequence[str]]] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        is_same = tag == "equal"
        parts += [("same", after[j1:j2])] if is_same else [("removed", before[i1:i2]), ("added", after[j1:j2])]
    return parts


def _join(parts: Sequence[tuple[str, Sequence[str]]]) -> list[DiffPart]:
    """Join the words of each part; empty parts are left out."""
    joined = [(kind, "".join(words)) for kind, words in parts]
    return [DiffPart(kind, text) for kind, text in joined if text]  # type: ignore[arg-type]
