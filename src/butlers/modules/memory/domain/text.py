"""Preparation of text for the search index and for queries."""

import re

from butlers.errors import InvalidInput

MAX_INDEXED_BYTES = 1_048_576
MAX_VECTOR_BYTES = 250_000
MAX_QUERY_CHARACTERS = 20_000
_SPACE = re.compile(r"\s+")


def preprocess_text(text: str | None) -> str:
    """The text without NUL bytes and with single spaces, cut to a megabyte."""
    return _truncate_bytes(preprocess_query(text), MAX_INDEXED_BYTES)


def preprocess_query(text: str | None) -> str:
    """The query without NUL bytes and with single spaces; never cut."""
    if not text:
        return ""
    return _SPACE.sub(" ", text.replace("\x00", "").encode("utf-8", "replace").decode()).strip()


def truncate_for_index(text: str) -> str:
    """The beginning of the text that is indexed: PostgreSQL can't store a search vector over a megabyte.

    A vector has up to four times the size of its text, because hyphenated words are indexed complete and in parts.
    """
    return _truncate_bytes(preprocess_text(text), MAX_VECTOR_BYTES)


def truncate_query(text: str) -> str:
    """The beginning of the query that is searched: ranking by very many words takes seconds or fails."""
    return text[:MAX_QUERY_CHARACTERS]


def _truncate_bytes(text: str, max_bytes: int) -> str:
    """The beginning of the text in at most `max_bytes`, without splitting a character."""
    return text.encode()[:max_bytes].decode("utf-8", "ignore")


def validate_query(text: str | None, name: str = "query") -> str:
    """The prepared query; raises InvalidInput if it is blank, because its neighbours would be arbitrary."""
    query = preprocess_query(text)
    if not query:
        raise InvalidInput(f"{name} is blank", hint=f"Send a {name} with at least one word.")
    return truncate_query(query)
