"""How many tokens a text costs, counted the same way every time."""

from collections.abc import Callable, Sequence

UNKNOWN = frozenset({"[UNK]", "<unk>"})

CountTokens = Callable[[str], int]


def count_tokens_of(text: str, tokens: Sequence[str], spans: Sequence[tuple[int, int]]) -> int:
    """One for each token the tokenizer knows, and for what it does not know its bytes.

    A script or an emoji outside the vocabulary is then never undercounted: other tokenizers spend at most
    a token a byte on it.
    """
    return sum(
        len(text[start:end].encode()) if token in UNKNOWN else 1
        for token, (start, end) in zip(tokens, spans, strict=True)
    )
