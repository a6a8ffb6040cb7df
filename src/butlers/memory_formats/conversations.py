"""Conversations as episodes: the title, the first prompts and the last answer."""

from collections.abc import Sequence
from datetime import datetime

from butlers.memory_formats.records import ForeignEpisode, LeftOut
from butlers.session_summary import MAX_ANSWER_CHARACTERS, MAX_PROMPT_CHARACTERS

_MAX_PROMPTS = 5
_MAX_TITLE_CHARACTERS = 200
_READ_CHARACTERS = 4_000


def conversation_episode(
    id_: str,
    title: str,
    messages: Sequence[tuple[str, str]],
    *,
    created_at: datetime | None,
    updated_at: datetime | None,
) -> ForeignEpisode | LeftOut:
    """Return the episode of a conversation; its messages are pairs of `user` or `assistant` and a text."""
    prompts = [said for role, said in messages if role == "user"]
    answers = [said for role, said in messages if role == "assistant"]
    if not prompts:
        return LeftOut("a conversation without a prompt")
    asked = " / ".join(each[:_READ_CHARACTERS] for each in prompts[:_MAX_PROMPTS])
    lines = [
        f"Conversation: {_line(title, _MAX_TITLE_CHARACTERS)}" if title.strip() else "",
        f"Asked: {_line(asked, MAX_PROMPT_CHARACTERS)}",
        f"Result: {_line(answers[-1][:_READ_CHARACTERS], MAX_ANSWER_CHARACTERS)}" if answers else "",
    ]
    return ForeignEpisode(
        id=id_,
        content="\n".join(line for line in lines if line),
        created_at=created_at,
        updated_at=updated_at,
        metadata={"messages": len(messages)},
    )


def _line(said: str, limit: int) -> str:
    folded = " ".join(said.split())
    return folded if len(folded) <= limit else f"{folded[:limit]} …"
