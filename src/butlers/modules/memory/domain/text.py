"""Text made ready for the search index and for queries."""

import re

from butlers.errors import InvalidInput

LONGEST_INDEXED_BYTES = 1_048_576
LONGEST_VECTOR_BYTES = 250_000
LONGEST_RANKED_CHARACTERS = 20_000
_SPACE = re.compile(r"\s+")


def preprocess_text(text: str | None) -> str:
    """What goes into a search vector: no NUL bytes, single spaces, a megabyte at most."""
    return _truncate_bytes(preprocess_query(text), LONGEST_INDEXED_BYTES)


def preprocess_query(text: str | None) -> str:
    """What a person asked, without NUL bytes and with single spaces; never cut."""
    if not text:
        return ""
    return _SPACE.sub(" ", text.replace("\x00", "").encode("utf-8", "replace").decode()).strip()


def truncate_for_index(text: str) -> str:
    """The part of a text whose words are indexed: PostgreSQL can't hold a vector over a megabyte.

    A text makes a vector of up to four times its size: hyphenated words are indexed whole and in parts.
    """
    return _truncate_bytes(preprocess_text(text), LONGEST_VECTOR_BYTES)


def truncate_query(text: str) -> str:
    """The part of a question that is looked up: ranking by very many words takes seconds, and more of them fail."""
    return text[:LONGEST_RANKED_CHARACTERS]


def _truncate_bytes(text: str, longest: int) -> str:
    """The text up to so many bytes, on a whole character."""
    return text.encode()[:longest].decode("utf-8", "ignore")


def validate_query(text: str | None, name: str = "query") -> str:
    """A query that asks something; a blank one is refused, because its neighbours would be arbitrary."""
    asked = preprocess_query(text)
    if not asked:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one word.")
    return truncate_query(asked)


def one_line(text: str) -> str:
    """The text folded into one line, so that it can't begin a line of its own in a prompt."""
    return _SPACE.sub(" ", "".join(c if c.isprintable() or c.isspace() else " " for c in text)).strip()
