"""Token counts."""

from collections.abc import Callable, Sequence

UNKNOWN_TOKENS = frozenset({"[UNK]", "<unk>"})

CountTokens = Callable[[str], int]


def count_tokens_of(text: str, tokens: Sequence[str], spans: Sequence[tuple[int, int]]) -> int:
    """One for each known token, and the bytes of each unknown one.

    Text outside the vocabulary is never undercounted: other tokenizers spend at most one token per byte on it.
    """
    return sum(
        len(text[start:end].encode()) if token in UNKNOWN_TOKENS else 1
        for token, (start, end) in zip(tokens, spans, strict=True)
    )
