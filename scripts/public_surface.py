"""Public surface as plain data: tools and their schemas, commands and their options, configuration keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from butlers.cli import app
from butlers.config import ButlerConfig
from butlers.host.server import BoundTool
from butlers.host.trigger_tool import TOOLS as HOST_TOOLS
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.tools import TOOLS as MEMORY_TOOLS
from butlers.toml_diagnostics import table_model_of

PAGE = Path(__file__).parents[1] / "tests" / "house" / "public_surface.json"
_TEXT_KEYS = {"description", "title"}


def surface() -> dict[str, Any]:
    """The tools, commands and configuration keys that other programs depend on, without their texts."""
    return {
        "tools": {tool.name: _tool(tool) for tool in (*MEMORY_TOOLS, *HOST_TOOLS)},
        "commands": dict(_commands(typer.main.get_command(app), ("butlers",))),
        "configuration": {
            **dict(_keys(ButlerConfig, "butler")),
            **dict(_keys(MemoryModuleConfig, "modules.memory")),
        },
    }


def _tool(tool: Any) -> dict[str, Any]:
    mcp = BoundTool(tool, None).mcp_tool
    return {
        "toolset": tool.toolset,
        "aliases": dict(tool.aliases),
        "input": _without_texts(mcp.parameters),
        "output": _without_texts(mcp.output_schema),
        "hints": mcp.annotations.model_dump(exclude_none=True) if mcp.annotations else {},
    }


def _without_texts(schema: Any) -> Any:
    if isinstance(schema, dict):
        properties = schema.get("properties")
        cleaned = {key: _without_texts(value) for key, value in schema.items() if key not in _TEXT_KEYS}
        if isinstance(properties, dict):
            cleaned["properties"] = {key: _without_texts(value) for key, value in properties.items()}
        return cleaned
    return [_without_texts(item) for item in schema] if isinstance(schema, list) else schema


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield (
            " ".join(path),
            {
                (param.metavar or param.name) if param.param_type_name == "argument" else "/".join(param.opts): {
                    "required": param.required,
                    "default": _plain(param.default),
                    "flag": bool(getattr(param, "is_flag", False)),
                }
                for param in command.params
            },
        )
        return
    for name, subcommand in subcommands.items():
        yield from _commands(subcommand, (*path, name))


def _keys(model: type[BaseModel], path: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        if table := table_model_of(field.annotation):
            yield from _keys(table, f"{path}.{name}")
        else:
            yield f"{path}.{name}", "required" if field.is_required() else _plain(field.default)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, list, type(None))) else str(value)


def render() -> str:
    """The surface as JSON, one line for each tool, command and key."""
    groups = []
    for group, entries in surface().items():
        lines = [
            f"  {json.dumps(name)}: {json.dumps(entry, sort_keys=True)}" for name, entry in sorted(entries.items())
        ]
        groups.append(f" {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(groups) + "\n}\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
