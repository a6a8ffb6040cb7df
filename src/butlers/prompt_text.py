"""Escaping of text that goes into a prompt as data: visible characters, one line, no tags."""

import re
import unicodedata
from collections.abc import Iterator

# Emoji and symbols that a variation selector or a joiner may follow.
_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_EMOJI_SEQUENCE = rf"[{_EMOJI}][\ufe0e\ufe0f]?(?:\u200d[{_EMOJI}][\ufe0e\ufe0f]?)*"
_KEYCAP = r"[0-9#*]\ufe0f\u20e3"
# England, Scotland and Wales: other tags after a flag have no meaning.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
# Arabic to Sinhala, Tibetan, Myanmar, Khmer, Mongolian and others, in which joiners are part of the spelling.
_JOINED_SCRIPTS = (
    r"\u0620-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\u1b00-\u1b7f\ua980-\ua9df"
    r"\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc\U00011000-\U000114ff"
)
_JOINER = rf"(?<=[{_JOINED_SCRIPTS}])[\u200c\u200d](?=[{_JOINED_SCRIPTS}])"
# Unicode's ignorable characters, other format controls without a glyph, surrogates, private use, noncharacters.
_INVISIBLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d159"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff\ufdd0-\ufdef"
    + "".join(rf"\U{plane:04x}fffe-\U{plane:04x}ffff" for plane in range(15))
)
_HAS_INVISIBLE = re.compile(rf"[{_INVISIBLE}]")
# The first characters of all alternatives are tested at once: most characters begin none of them.
_DROPPED = re.compile(
    rf"(?=[0-9#*{_EMOJI}{_INVISIBLE}])(?:({_FLAGS}|{_EMOJI_SEQUENCE}|{_KEYCAP}|{_JOINER})|[{_INVISIBLE}]+)"
)
_BLANK = re.compile(r"[\x00-\x1f\x7f-\x9f\u2800]")
_SAFE_AFTER_BRACKET = r"\s0-9=<>~.,;'\"()\[\]{}+*^$#&@`\-"
# The characters that make a bracket before a space a tag, and those that a Unicode normalisation turns into them.
_TAG_MARK = r"/!?|\\\u203c\u2047-\u2049\ufe15\ufe16\ufe56\ufe57\ufe68\uff01\uff0f\uff1f\uff3c\uff5c"
_NAME = r"[\w:.\-]{1,64}"
# A bracket that begins a tag, with at most one space after it, and the wide and small forms of such a bracket.
# "a < b", "<3" and "<=" begin none.
_TAG_BRACKET = re.compile(
    rf"[<\uff1c\ufe64](?:(?<=<)(?=[^{_SAFE_AFTER_BRACKET}]| [{_TAG_MARK}]| {_NAME} ?>| {_NAME} {_NAME} ?=)"
    rf"|(?<!<)(?= ?[^{_SAFE_AFTER_BRACKET}\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]))"
)
_CHARACTERS = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_ENTITY = re.compile(rf"&({'|'.join(_CHARACTERS)});")
_ENTITIES = {
    "<": "&lt;", "\uff1c": "&lt;", "\ufe64": "&lt;", ">": "&gt;", "\uff1e": "&gt;", "\ufe65": "&gt;", "&": "&amp;"
}  # fmt: skip
_PIECE_CHARACTERS = 4_000
_SPECIAL = re.compile(f"[{''.join(_ENTITIES)}]")


def fold_line(text: str) -> str:
    """The text as one line of visible characters and single spaces.

    Emoji sequences stay, and so do joiners between letters of scripts that are spelled with them.
    """
    # In pieces: the interpreter's lock is held for all of a substitution.
    return " ".join(line for piece in _pieces(text) if (line := _fold_piece(piece)))


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end before a space, which is part of no sequence of characters."""
    start = 0
    while (end := text.find(" ", start + _PIECE_CHARACTERS)) >= 0:
        yield text[start:end]
        start = end
    yield text[start:]


def _fold_piece(text: str) -> str:
    if not text.isascii() and _HAS_INVISIBLE.search(text):
        text = _DROPPED.sub(r"\1", text)
    return " ".join(_BLANK.sub(" ", text).split())


def escape_line(text: str) -> str:
    """The text as one line that opens and closes no tag. Escaping a line again does not change it."""
    return _guard_start(_TAG_BRACKET.sub("&lt;", fold_line(text)))


def escape_between_tags(text: str) -> str:
    """The text as one line between two tags: no bracket is left in it, even after a Unicode normalisation.

    Escaping it again does not change it: what a model repeats and stores does not grow with each prompt.
    """
    line = _ENTITY.sub(lambda entity: _CHARACTERS[entity[1]], fold_line(text))
    return _guard_start(_SPECIAL.sub(lambda special: _ENTITIES[special[0]], line))


def _guard_start(line: str) -> str:
    # A leading combining mark would change the character before the text, which may end a tag.
    return f" {line}" if line and unicodedata.category(line[0]).startswith("M") else line


def escape_lines(text: str) -> str:
    """The text with each of its lines escaped."""
    return "\n".join(escape_line(line) for line in text.split("\n"))
