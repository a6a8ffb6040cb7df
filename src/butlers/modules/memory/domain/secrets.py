"""Secrets in texts: patterns of passwords, keys and card numbers, and the text without them."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

PIECE_CHARACTERS = 4_096
_OVERLAP_CHARACTERS = 300
"""A long text is searched in pieces that overlap by a name and its password."""
MAX_TOKEN_CHARACTERS = 256
_MIN_TOKEN_CHARACTERS = 20


@dataclass(frozen=True, slots=True, order=True)
class Secret:
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


JudgeToken = Callable[[str], str | None]
"""Returns the kind of a token if it is a credential."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Words in lower case, the expression that follows one of them, and the judgement of its group `secret`."""

    kind: str
    words: Sequence[str]
    follows: re.Pattern[str]
    is_secret: Callable[[str], bool] = lambda _: True
    precedes: re.Pattern[str] | None = None


_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLACEHOLDER = re.compile(
    r"[$<{\[(*%…]|x{3,}|\.{3}|(?:your|my|the|a|an|example|changeme|redacted|none|null|true|false|password|secret|pass|pw)\b",
    re.IGNORECASE,
)
_SEPARATOR = r"[\"'`]?\s{0,3}(?:=>?|:|->|\bis(?:\snow)?\b|\bwas\b|\bset\sto\b)\s{0,3}[\"'`]?"


_DIGIT, _LETTER = re.compile(r"\d"), re.compile(r"[^\W\d_]")


def _has_letter_and_digit(text: str) -> bool:
    return bool(_DIGIT.search(text) and _LETTER.search(text))


def _is_password(text: str) -> bool:
    """Whether a word behind `password is` is one, and not the next word of a sentence."""
    if _PLACEHOLDER.match(text) or _UUID.fullmatch(text):
        return False
    return _has_letter_and_digit(text) or any(each in "!@#$%^&*_+=~?/" for each in text[1:-1])


_WORD_OR_NUMBER = re.compile(r"[A-Za-z]{2,}|[A-Za-z]{0,2}\d{1,4}|")


def _is_key(text: str) -> bool:
    """Whether a value behind `api_key =` is one, and not a name such as `orders_customer_id_2` or a path."""
    if _PLACEHOLDER.match(text) or _UUID.fullmatch(text) or not _has_letter_and_digit(text):
        return False
    return not all(_WORD_OR_NUMBER.fullmatch(part) for part in re.split(r"[_./-]", text))


_PATTERNS = (
    _Pattern(
        "password",
        (
            "password",
            "passwd",
            "passphrase",
            "passcode",
            "pwd",
            "passwort",
            "kennwort",
            "contraseña",
            "senha",
            "_pass",
        ),
        re.compile(
            rf"(?:\s(?:for|of|to|on)\s[^\s:=]{{1,40}}(?:\s[^\s:=]{{1,40}})?)?{_SEPARATOR}"
            r"(?P<secret>[^\s\"'`,;]{6,128}(?<![.!?)\]]))"
        ),
        _is_password,
    ),
    _Pattern(
        "key",
        ("key", "token", "secret"),
        re.compile(rf"(?:[ _-]?(?:id|key|ID|KEY))?{_SEPARATOR}(?P<secret>[A-Za-z0-9_\-./+=~]{{16,200}})"),
        _is_key,
        re.compile(
            r"(?:\b(?:api|access|auth|secret|client|private|bearer|session|refresh|signing|encryption|account)[ _-]?"
            r"|[A-Za-z0-9]_)$",
            re.IGNORECASE,
        ),
    ),
    _Pattern("bearer token", ("bearer ", "basic "), re.compile(r"(?P<secret>[A-Za-z0-9_\-./+=~]{16,2000})"), _is_key),
    _Pattern(
        "password in a URL",
        ("://",),
        re.compile(r"[^\s:/?#@]{1,100}:(?P<secret>[^\s:/?#@]{3,200})@"),
        lambda text: not _PLACEHOLDER.match(text),
    ),
)
_PREFIX_CHARACTERS = 20
_PRIVATE_KEY_WORD = "PRIVATE KEY"
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^-]{0,8000}"
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----)?"
)
_WEB_TOKEN = re.compile(r"eyJ[A-Za-z0-9_\-=]{10,}\.[A-Za-z0-9_\-=]{10,}(?:\.[A-Za-z0-9_\-=]*)?")
_TOKEN = re.compile(rf"[A-Za-z0-9_\-./+=:]{{{_MIN_TOKEN_CHARACTERS},{MAX_TOKEN_CHARACTERS}}}")
_KNOWN_TOKEN = re.compile(
    r"AIza[0-9A-Za-z_\-]{35}|sk-ant-[A-Za-z0-9_\-]{20,}|sk-(?:proj-|svcacct-|or-v1-)?[A-Za-z0-9_\-]{32,}"
    r"|github_pat_[A-Za-z0-9_]{22,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}"
    r"|ya29\.[A-Za-z0-9_\-]{20,}|dop_v1_[a-f0-9]{64}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|butlers_[A-Za-z0-9_\-]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}"
)
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-]|\.\d)")
_CARD_PREFIX = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}"
)


def find_secrets(text: str, judge_token: JudgeToken) -> list[Secret]:
    """The secrets of a text in order; none overlaps another. `judge_token` knows the tokens of providers."""
    found = {*_by_word(text), *_cards(text), *_tokens(text, judge_token)}
    return merge_secrets(found)


def has_tokens(text: str) -> bool:
    """Whether a word of the text could be the token of a provider."""
    return any(_has_letter_and_digit(word) for word in _long_words(text))


def split_text(text: str) -> Iterator[tuple[int, str]]:
    """The pieces of a long text with their places; they overlap, and end with a word where one ends."""
    start = 0
    while start < len(text):
        end, middle = start + PIECE_CHARACTERS, start + PIECE_CHARACTERS // 2
        if end < len(text):
            last_space = max(text.rfind(" ", middle, end), text.rfind("\n", middle, end))
            end = last_space if last_space > 0 else end
        yield start, text[start:end]
        if end >= len(text):
            return
        start = end - _OVERLAP_CHARACTERS


def find_private_keys(text: str) -> Iterator[Secret]:
    """The private keys of a text; unlike other secrets they are longer than a piece."""
    place = text.find(_PRIVATE_KEY_WORD)
    while place >= 0:
        match = _PRIVATE_KEY.search(text, max(place - 50, 0), place + 9_000)
        if match:
            yield Secret(*match.span(), "private key")
        place = text.find(_PRIVATE_KEY_WORD, match.end() if match else place + len(_PRIVATE_KEY_WORD))


def merge_secrets(secrets: Iterable[Secret]) -> list[Secret]:
    """The secrets in order; where two overlap, one that covers both."""
    merged: list[Secret] = []
    for each in sorted(secrets):
        if merged and each.start < merged[-1].end:
            merged[-1] = Secret(merged[-1].start, max(merged[-1].end, each.end), merged[-1].kind)
        else:
            merged.append(each)
    return merged


def redact(text: str, secrets: Sequence[Secret]) -> str:
    """The text with the kind of each secret in its place."""
    parts, end = [], 0
    for each in secrets:
        parts += [text[end : each.start], f"[redacted: {each.kind}]"]
        end = each.end
    return "".join([*parts, text[end:]])


def count_kinds(secrets: Iterable[Secret]) -> dict[str, int]:
    """The number of secrets of each kind."""
    return dict(Counter(each.kind for each in secrets))


def _by_word(text: str) -> Iterator[Secret]:
    """The secrets that follow a word such as `password`."""
    lowered = text.lower()
    if len(lowered) != len(text):
        # Some letters are longer in lower case; the places must stay.
        lowered = "".join(low if len(low := each.lower()) == 1 else each for each in text)
    for pattern in _PATTERNS:
        for word in pattern.words:
            place = lowered.find(word)
            while place >= 0:
                end = place + len(word)
                match = pattern.follows.match(text, end)
                before = text[max(place - _PREFIX_CHARACTERS, 0) : place]
                if match and pattern.is_secret(match["secret"]) and _is_preceded(pattern, before):
                    yield Secret(*match.span("secret"), pattern.kind)
                    end = match.end()
                place = lowered.find(word, end)


def _is_preceded(pattern: _Pattern, before: str) -> bool:
    return pattern.precedes is None or pattern.precedes.search(before) is not None


def _cards(text: str) -> Iterator[Secret]:
    for match in _CARD.finditer(text):
        digits = match[0].replace(" ", "").replace("-", "")
        if _CARD_PREFIX.fullmatch(digits) and _passes_luhn(digits):
            yield Secret(*match.span(), "card number")


def _passes_luhn(digits: str) -> bool:
    doubled = (int(each) * (1 + place % 2) for place, each in enumerate(reversed(digits)))
    return sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _long_words(text: str) -> list[str]:
    return [word for word in text.split() if len(word) >= _MIN_TOKEN_CHARACTERS]


def _tokens(text: str, judge_token: JudgeToken) -> Iterator[Secret]:
    end = 0
    for word in _long_words(text):
        start = text.index(word, end)
        end = start + len(word)
        if not _has_letter_and_digit(word):
            continue
        for match in _WEB_TOKEN.finditer(word):
            yield Secret(start + match.start(), start + match.end(), "JSON web token")
        for match in _TOKEN.finditer(word):
            yield from _judge(match[0], start + match.start(), judge_token)


def _judge(token: str, start: int, judge_token: JudgeToken) -> Iterator[Secret]:
    if _UUID.fullmatch(token):
        return
    if known := _KNOWN_TOKEN.search(token):
        yield Secret(start + known.start(), start + known.end(), "token")
    elif kind := judge_token(token):
        yield Secret(start, start + len(token), kind)
