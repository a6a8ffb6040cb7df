"""Comparison of two statements by their words: whether they say the same, or something else about the same thing.

Vectors find what is about the same thing, but purple and cyan are near each other. Words tell them apart.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MIN_SHARED_WORDS = 0.75
"""The share of the shorter statement's words that the longer one has to have."""
_WORD = re.compile(r"[^\W_]+")
_PROMPT_LINE = re.compile(r"^Asked: (.*)$", re.MULTILINE)
_NEGATION_WORDS = "no not never none neither nor without dont doesnt didnt isnt arent wasnt cannot cant"
_NEGATIONS = frozenset(_NEGATION_WORDS.split())
_EMPTY_WORDS = """
a about all also always an and any are as at be been best both but by do does for from goes had has have he her hers
him his i in into is it its just me more most much my of often on one or other our out own prefers she so some than
that the their them then there these they this those to too up us user very was we were what when which while who
will with would you your likes like called named name
"""
_STOP_WORDS = frozenset(_EMPTY_WORDS.split())
_SUFFIXES = ("ing", "ed", "es", "s")
_MIN_STEM = 3


class Comparison(StrEnum):
    """How two statements about one subject relate."""

    SAME = "same"
    OTHERWISE = "otherwise"
    DIFFERENT_THING = "different thing"


@dataclass(frozen=True, slots=True)
class Statement:
    """A fact as words; a rule has a content only."""

    content: str
    subject: str = ""
    predicate: str = ""


def compare(new: Statement, known: Statement) -> Comparison:
    """How a new statement relates to a known one about the same subject, whose vector is near."""
    if _numbers(new.predicate) != _numbers(known.predicate):
        return Comparison.DIFFERENT_THING
    topic = _stems(f"{new.subject} {known.subject} {new.predicate} {known.predicate}")
    ours, theirs = _stems(new.content), _stems(known.content)
    if _numbers(new.content) != _numbers(known.content) or _is_negated(new) != _is_negated(known):
        return Comparison.OTHERWISE
    return Comparison.SAME if _share(ours, theirs, topic) >= MIN_SHARED_WORDS else Comparison.OTHERWISE


def is_said_in(statement: Statement, episode: str) -> bool:
    """Whether the prompt in an episode says the statement, so that it happened and was not merely recalled.

    An episode without a prompt line tells nothing about who said it.
    """
    prompt = _PROMPT_LINE.search(episode)
    words = _stems(statement.content) - _stems(statement.subject)
    return prompt is not None and bool(words) and words <= _stems(prompt[1])


def _share(ours: set[str], theirs: set[str], topic: set[str]) -> float:
    """The share of the shorter statement's own words that the other one has, in its content or its key."""
    ours_only, theirs_only = ours - topic, theirs - topic
    if not ours_only or not theirs_only:
        # A content of nothing but words of the keys, such as `morning_drink: drinks in the morning`.
        return 1.0 if ours_only == theirs_only and (ours & theirs or ours == theirs) else 0.0
    return len(ours_only & theirs_only) / min(len(ours_only), len(theirs_only))


def _words(text: str) -> Iterable[str]:
    return _WORD.findall(text.lower().replace("'", "").replace("\u2019", ""))


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in _words(text) if word not in _STOP_WORDS and word not in _NEGATIONS}


def _stem(word: str) -> str:
    word = word.replace("our", "or")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            return word.removesuffix(suffix)
    return word


def _numbers(text: str) -> set[str]:
    return {word for word in _words(text) if any(each.isdigit() for each in word)}


def _is_negated(statement: Statement) -> bool:
    return sum(word in _NEGATIONS for word in _words(f"{statement.predicate} {statement.content}")) % 2 == 1
