"""Delivery of events from the outbox: each becomes an episode of its butler, once."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from butlers.agents import AGENTS, Agent
from butlers.environment import Environment
from butlers.errors import Conflict, Fault, InvalidInput, Unavailable
from butlers.hooks.event import HookEvent, parse_event
from butlers.hooks.once import claim_keeping
from butlers.hooks.outbox import Outbox, delete_event, read_event

if TYPE_CHECKING:
    from butlers.hooks.butler_tools import ButlerTools

_STORE_TIMEOUT_SECONDS = 60.0
_RETRY_SECONDS = 0.1


def accept_event(outbox: Outbox, hook: str, event_json: str, agent: Agent) -> Path | None:
    """Put the event of a hook into the outbox and return its file; None if there is nothing to keep.

    That is an event that says nothing, and one of a session that the hooks of another agent keep already.

    Raises `InvalidInput` for what is no event, and without a butler.
    """
    event = parse_event(event_json)
    transcript_end = _size(event.transcript)
    if not (outbox.butler / "butler.toml").is_file():
        raise InvalidInput(f"there is no butler.toml in {outbox.butler}")
    # Some agents also run the hook when they only list their servers.
    if not (event.prompt or event.messages or transcript_end):
        return None
    if event.session and not claim_keeping(outbox.home, agent.name, str(outbox.butler), event.session):
        return None
    return outbox.add(
        {
            "hook": hook,
            "agent": agent.name,
            "event": event.as_dict(),
            # What the agent writes later belongs to the next turn.
            "transcript_end": transcript_end,
        }
    )


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size if path else None  # noqa: PTH116 — the path may contain anything
    except (OSError, ValueError):
        return None


def deliver_later(outbox: Outbox) -> None:
    """Start a process that delivers and outlives the agent; one that is at work already looks again at its end."""
    with outbox.lock() as is_free:
        if not is_free:
            return
    subprocess.Popen(  # noqa: S603 — the program is this one
        [sys.executable, "-m", "butlers.cli", "hook", "deliver", str(outbox.butler)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


@dataclass(slots=True)
class DeliveryReport:
    """What one delivery has done."""

    stored: int = 0
    left_out: int = 0
    """Events without a prompt, and those whose episode was stored before."""
    waiting: int = 0
    is_busy: bool = False
    """Whether another process delivers at the moment."""
    errors: list[str] = field(default_factory=list)


async def deliver(outbox: Outbox, environment: Environment, awaited: Path | None = None) -> DeliveryReport:
    """Store an episode for each waiting event; an event that fails stays for the next delivery.

    While another process delivers, there is nothing to do, unless an event is awaited.
    """
    report = DeliveryReport()
    tried: set[Path] = set()
    while untried := _untried(outbox, tried, awaited):
        with outbox.lock() as is_mine:
            if is_mine:
                tried.update(untried)
                await _deliver_all(outbox, environment, untried, report)
        if not is_mine and awaited is None:
            report.is_busy = True
            break
        if not is_mine:
            await asyncio.sleep(_RETRY_SECONDS)
    report.waiting = len(outbox.waiting())
    if tried:
        outbox.note_error(report.errors[-1] if report.errors else "")
    return report


def _untried(outbox: Outbox, tried: set[Path], awaited: Path | None) -> list[Path]:
    """Return the events that are still to be tried; none once the awaited one is gone."""
    waiting = outbox.waiting()
    return [path for path in waiting if path not in tried] if awaited is None or awaited in waiting else []


async def _deliver_all(outbox: Outbox, environment: Environment, paths: list[Path], report: DeliveryReport) -> None:
    """Deliver events up to the first that finds the butler out of reach."""
    from butlers import app
    from butlers.hooks.butler_tools import open_tools

    try:
        async with open_tools(app.load_configuration(outbox.butler), environment) as tools:
            for path in paths:
                await _deliver(tools, path, report)
    except Exception as error:  # noqa: BLE001 — the events wait, with the reason
        report.errors.append(_reason(error))


async def _deliver(tools: "ButlerTools", path: Path, report: DeliveryReport) -> None:
    try:
        async with asyncio.timeout(_STORE_TIMEOUT_SECONDS):
            is_stored = await _store(tools, read_event(path))
    except (Unavailable, TimeoutError):
        raise
    except Exception as error:  # noqa: BLE001 — one event must not keep the others from being delivered
        report.errors.append(_reason(error))
        return
    delete_event(path)
    report.stored += is_stored
    report.left_out += not is_stored


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"the memory took longer than {_STORE_TIMEOUT_SECONDS:g} s"
    return error.message if isinstance(error, Fault) else type(error).__name__


async def _store(tools: "ButlerTools", content: Mapping[str, Any]) -> bool:
    """Store the episode of an event; return False if there is nothing to store, or it is stored already."""
    from butlers.hooks.episode import WORK, episode_arguments, read_session
    from butlers.hooks.session_start import current_context

    agent, work_of = AGENTS.get(str(content.get("agent"))), WORK.get(str(content.get("hook")))
    if agent is None or work_of is None:
        return False
    event = HookEvent(**content["event"])
    transcript = await asyncio.to_thread(read_session, event, agent, content.get("transcript_end"))
    work = work_of(event, agent, transcript)
    if not work.prompt:
        return False
    injected = [event.told, *transcript.injected]
    if not agent.shows_context and not event.told:
        injected.append(await current_context(tools, event, agent))
    arguments = episode_arguments(work, event, agent, tools.config.butler.name, "\n".join(injected))
    details = {"outcome": event.reason or "ended", "trigger_source": agent.name}
    try:
        answer = await tools.call("memory_store_episode", arguments, actor=agent.name, details=details)
    except Conflict:
        return False
    return answer is not None
