"""Unprintable characters as visible escapes, for terminals and pages."""

import unicodedata

_JOINERS = "\u200c\u200d"
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escape_control_characters(text: str) -> str:
    """Return the text with every character that could hide or reorder it as an escape sequence."""
    return text if text.isprintable() else "".join(map(_escape, text))


def has_hidden_characters(text: str) -> bool:
    """Whether the text has characters that a reader can't see."""
    return any(_is_hidden(character) for character in text) if not text.isprintable() else False


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode() if _is_hidden(character) else character


def _is_hidden(character: str) -> bool:
    if character in _JOINERS or character == "\n":
        return False
    return unicodedata.category(character) in _UNPRINTABLE
