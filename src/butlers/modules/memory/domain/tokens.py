"""Token counts."""

from collections.abc import Callable, Iterator, Sequence

UNKNOWN_TOKENS = frozenset({"[UNK]", "<unk>"})
MAX_PIECE_CHARACTERS = 2_000
"""The tokenizer holds the interpreter's lock: a second for a megabyte, about a millisecond for a piece."""

CountTokens = Callable[[str], int]


def split_pieces(text: str) -> Iterator[str]:
    """The text in pieces to be counted one by one, each cut before a space where there is one."""
    start = 0
    while len(text) - start > MAX_PIECE_CHARACTERS:
        end = start + MAX_PIECE_CHARACTERS
        space = text.rfind(" ", start + 1, end)
        end = end if space < 0 else space
        yield text[start:end]
        start = end
    yield text[start:]


def count_tokens_of(text: str, tokens: Sequence[str], spans: Sequence[tuple[int, int]]) -> int:
    """One for each known token, and the bytes of each unknown one.

    Text outside the vocabulary is never undercounted: other tokenizers spend at most one token per byte on it.
    """
    return sum(
        len(text[start:end].encode()) if token in UNKNOWN_TOKENS else 1
        for token, (start, end) in zip(tokens, spans, strict=True)
    )
