"""Detection of secrets in texts, with the patterns of detect-secrets for the tokens of providers."""

import time
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module

from butlers.modules.memory.domain.secrets import (
    Secret,
    find_private_keys,
    find_secrets,
    has_tokens,
    merge_secrets,
    split_text,
)

MAX_INLINE_CHARACTERS = 4_000
"""A longer text is searched in a thread: its search may take more than a millisecond."""
_PLUGINS = {
    "aws": "AWSKeyDetector",
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "mailchimp": "MailchimpDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
"""Left out are those that take more than some microseconds for a token, and those that judge by entropy."""


@cache
def _detectors() -> tuple[tuple[str, Callable[[str], Iterable[str]]], ...]:
    """The detectors of providers' tokens; importing them takes some tenths of a second, so it is done late."""
    plugins = [getattr(import_module(f"detect_secrets.plugins.{name}"), each)() for name, each in _PLUGINS.items()]
    return tuple((plugin.secret_type, plugin.analyze_string) for plugin in plugins)


def _judge_token(token: str) -> str | None:
    return next((kind for kind, analyze in _detectors() if next(iter(analyze(token)), None)), None)


def is_quick(text: str) -> bool:
    """Whether a search of the text takes less than a millisecond."""
    return len(text) <= MAX_INLINE_CHARACTERS and not has_tokens(text)


def detect_secrets(text: str) -> list[Secret]:
    """The secrets of a text, piece by piece; between two pieces other threads get their turn."""
    found = list(find_private_keys(text))
    for start, piece in split_text(text):
        found += (
            Secret(start + each.start, start + each.end, each.kind) for each in find_secrets(piece, _judge_token)
        )
        time.sleep(0)
    return merge_secrets(found)
