"""One event of a session of any agent, read from JSON."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from butlers.errors import InvalidInput

MAX_EVENT_CHARACTERS = 16 * 1024 * 1024
_MAX_TEXT_CHARACTERS = 100_000
_MAX_ID_CHARACTERS = 100

# The names that agents give a field; the first one that is there counts.
_NAMES: Mapping[str, Sequence[str]] = {
    "session": ("session_id", "conversation_id"),
    "project": ("cwd",),
    "transcript": ("transcript_path",),
    "source": ("source",),
    "reason": ("reason", "status"),
    "turn": ("turn_id", "generation_id"),
    "prompt": ("prompt",),
    "answer": ("last_assistant_message", "prompt_response"),
    "told": ("told",),
}


@dataclass(frozen=True, slots=True)
class HookEvent:
    """An event; a field that the agent does not send is empty."""

    session: str = ""
    project: str = ""
    transcript: str = ""
    source: str = ""
    reason: str = ""
    turn: str = ""
    prompt: str = ""
    answer: str = ""
    told: str = ""
    """The memories that the session was told, where the agent hands them back."""
    messages: list[Any] = field(default_factory=list)
    """The transcript itself, from an agent that has no file."""

    @property
    def project_name(self) -> str:
        """The name of the project's folder."""
        return Path(self.project).name or "this project"

    @property
    def session_key(self) -> str:
        """What tells this session from others: its id, or else its transcript or folder."""
        return self.session or self.transcript or self.project

    def session_uuid(self, agent: str) -> UUID:
        """Return the session's id; one that is no UUID becomes the same UUID each time."""
        try:
            return UUID(self.session)
        except ValueError:
            return uuid5(NAMESPACE_URL, f"butlers:{agent}:{self.session_key}")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        return {name: value for name, value in asdict(self).items() if value}


def parse_event(text: str) -> HookEvent:
    """Return the event of a hook; raise `InvalidInput` unless the text is a JSON object."""
    event = None
    if len(text) <= MAX_EVENT_CHARACTERS:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            event = None
    if not isinstance(event, dict):
        raise InvalidInput("a hook expects its event as a JSON object on stdin")
    fields = {name: _first_text(event, names) for name, names in _NAMES.items()}
    messages = event.get("messages")
    return HookEvent(
        **{**fields, "project": fields["project"] or _first_folder(event)},
        messages=messages if isinstance(messages, list) else [],
    )


def _first_text(event: Mapping[str, Any], names: Sequence[str]) -> str:
    texts = (event.get(name) for name in names)
    return next((text[:_MAX_TEXT_CHARACTERS] for text in texts if isinstance(text, str) and text.strip()), "")


def _first_folder(event: Mapping[str, Any]) -> str:
    """Return the first of several folders that an editor has open."""
    folders = event.get("workspace_roots")
    return next((each for each in folders if isinstance(each, str)), "") if isinstance(folders, list) else ""


def short_id(text: str) -> str:
    """Return an id of limited length: the text, or the hash of a long one."""
    return text if len(text) <= _MAX_ID_CHARACTERS else hashlib.sha256(text.encode()).hexdigest()
