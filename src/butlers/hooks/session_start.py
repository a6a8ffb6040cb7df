"""The memories that a session starts with."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from butlers import app
from butlers.agents import Agent
from butlers.config import Configuration
from butlers.environment import Environment
from butlers.hooks.butler_tools import ButlerTools, open_tools
from butlers.hooks.event import HookEvent, parse_event
from butlers.hooks.once import claim_start
from butlers.prompt_text import escape_lines

_TIMEOUT_SECONDS = 8.0
_TOOLS_LINE = (
    "The tools of this memory are those of the MCP server {server}. Search for them by name before you use them: "
    "memory_recall, memory_search, memory_store_fact, memory_store_rule, memory_confirm, memory_forget."
)


@dataclass(frozen=True, slots=True)
class ToldContext:
    """What one session was told at its start."""

    agent: str
    session_id: str
    project: str
    text: str


async def session_start(folder: Path, event_json: str, agent: Agent, environment: Environment) -> str:
    """Return what the hook prints to give a session its memories; empty without any, or if another hook did."""
    event = parse_event(event_json)
    config = app.load_configuration(folder)
    if not claim_start(environment.home, str(config.folder.resolve()), event.session_key, event.source):
        return ""
    async with asyncio.timeout(_TIMEOUT_SECONDS), open_tools(config, environment) as tools:
        told = await tell(tools, event, agent)
    # The one place that knows what a session was told.
    return _OUTPUTS[agent.context_output](told.text) if told.text else ""


async def tell(tools: ButlerTools, event: HookEvent, agent: Agent) -> ToldContext:
    """Return what a session of this project is told; the text is empty if there is nothing to tell."""
    session_id = event.session_uuid(agent.name)
    block = await current_context(tools, event, agent, session_id)
    if agent.finds_tools_by_search and _has_memory(tools.config):
        block = "\n\n".join(filter(None, (block, _tools_line(tools.config, agent))))
    return ToldContext(agent.name, str(session_id), event.project, block)


async def current_context(tools: ButlerTools, event: HookEvent, agent: Agent, session_id: UUID | None = None) -> str:
    """Return the block of memories for the event's project; empty if it has none. A named session gets a receipt."""
    arguments = {"trigger_prompt": f"Work in the project {event.project_name}", "butler": tools.config.butler.name}
    block = await tools.call("memory_context", arguments, actor=agent.name, session_id=session_id)
    return escape_lines(block).strip() if isinstance(block, str) and "\n- " in block else ""


def _tools_line(config: Configuration, agent: Agent) -> str:
    return _TOOLS_LINE.format(server=agent.server_name(config.butler.name))


def _has_memory(config: Configuration) -> bool:
    module = config.modules.get("memory")
    return bool(module and module.enabled)


def _hook_specific(text: str) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}})


def _additional_context(text: str) -> str:
    return json.dumps({"additional_context": text})


_OUTPUTS: Mapping[str, Callable[[str], str]] = {
    "hook_specific": _hook_specific,
    "additional_context": _additional_context,
    "text": str,
}
