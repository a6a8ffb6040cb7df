"""Redaction of secrets in memories before they are embedded and stored."""

from dataclasses import replace
from typing import Any, TypeVar

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import NewEpisode, NewFact, NewRule
from butlers.modules.memory.domain.secrets import Secret, count_kinds, redact
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.secret_detector import detect_secrets, is_quick

New = TypeVar("New", bound=NewEpisode | NewFact | NewRule)
Redacted = dict[str, dict[str, int]]
"""The number of secrets of each kind under `redacted`, or nothing: a part of answers and events."""
NOTHING_REDACTED: Redacted = {}
_FIELDS = ("subject", "predicate", "content")


async def redact_secrets(memory: Memory, tenant: str, new: New) -> tuple[New, Redacted]:
    """The memory without its secrets, and how many of each kind it had; the secrets themselves are told nowhere.

    Raises `InvalidInput` where the configuration refuses secrets.
    """
    if memory.config.secrets == "keep":
        return new, {}
    texts = {name: getattr(new, name) for name in _FIELDS if hasattr(new, name)}
    found = {name: secrets for name, text in texts.items() if (secrets := await _detect(memory, tenant, text))}
    if not found:
        return new, {}
    kinds = count_kinds(each for secrets in found.values() for each in secrets)
    if memory.config.secrets == "refuse":
        raise InvalidInput(
            f"it contains a secret: {', '.join(sorted(kinds))}",
            hint="Leave the secret out, and store where it is kept instead.",
        )
    without: dict[str, Any] = {name: redact(texts[name], secrets) for name, secrets in found.items()}
    return replace(new, **without), {"redacted": kinds}


async def _detect(memory: Memory, tenant: str, text: str) -> list[Secret]:
    if is_quick(text):
        return detect_secrets(text)
    return await memory.scanning.run(tenant, lambda: detect_secrets(text))
