"""The episode of a turn or of a whole session, made from the event of a hook and the transcript."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from butlers.agents import Agent
from butlers.hooks.event import HookEvent, short_id
from butlers.session_summary import summarize_session
from butlers.transcripts import FORMATS, Transcript, Turn, read_entries, read_transcript

_MAX_PROMPTS = 5


@dataclass(frozen=True, slots=True)
class KeptWork:
    """What an episode is made of, and what identifies it: a repeated hook has the same `turn`."""

    prompt: str
    tools: Mapping[str, int]
    answer: str
    turn: str


def read_session(event: HookEvent, agent: Agent, end: int | None) -> Transcript:
    """Return the transcript of the event's session: its messages, or its file up to the byte `end`."""
    format_ = FORMATS[agent.transcript]
    if event.messages:
        return read_entries(event.messages, format_)
    return read_transcript(Path(event.transcript), format_, end)


def whole_session(event: HookEvent, agent: Agent, transcript: Transcript) -> KeptWork:
    """Return the work of a whole session."""
    del event, agent
    prompts = transcript.prompts
    return KeptWork(
        " / ".join(prompts[:_MAX_PROMPTS]), transcript.tools, transcript.answer, str(len(prompts)) if prompts else ""
    )


def last_turn(event: HookEvent, agent: Agent, transcript: Transcript) -> KeptWork:
    """Return the work of the last turn; the event itself wins over the transcript, which may lag behind."""
    turn = transcript.turns[-1] if transcript.turns else Turn("")
    pieces = FORMATS[agent.transcript].read_prompt(event.prompt)
    prompt = "\n".join(piece.text for piece in pieces if piece.kind == "prompt") or turn.prompt
    answer = event.answer or turn.answer
    digest = hashlib.sha256(f"{prompt}\0{answer}".encode("utf-8", "replace")).hexdigest()[:16]
    return KeptWork(prompt, turn.tools, answer, short_id(event.turn) or f"{len(transcript.prompts)}-{digest}")


WORK: Mapping[str, Callable[[HookEvent, Agent, Transcript], KeptWork]] = {
    "session-end": whole_session,
    "turn-end": last_turn,
}


def episode_arguments(work: KeptWork, event: HookEvent, agent: Agent, butler: str, injected: str) -> dict[str, Any]:
    """Return the arguments of `memory_store_episode`."""
    session_id = str(event.session_uuid(agent.name))
    return {
        "content": summarize_session(work.prompt, work.tools, injected, answer=work.answer),
        "butler": butler,
        "session_id": session_id,
        "idempotency_key": f"{agent.name} {session_id} {work.turn}",
    }
