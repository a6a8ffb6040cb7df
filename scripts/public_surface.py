"""The public surface as plain data: tools and their schemas, commands and their options, configuration keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel

from butlers.cli import app
from butlers.config import ButlerConfig
from butlers.host.server import BoundTool, _to_mcp_tool
from butlers.host.trigger_tool import TOOLS as HOST_TOOLS
from butlers.modules.memory.config import MemoryModuleConfig
from butlers.modules.memory.tools import TOOLS as MEMORY_TOOLS
from butlers.toml_diagnostics import table_model_of

PAGE = Path(__file__).parents[1] / "tests" / "house" / "public_surface.json"
_WORDING = {"description", "title"}


def surface() -> dict[str, Any]:
    """Everything other programs hold on to, without its wording."""
    return {
        "tools": {tool.name: _tool(tool) for tool in (*MEMORY_TOOLS, *HOST_TOOLS)},
        "commands": dict(_commands(typer.main.get_command(app), ("butlers",))),
        "configuration": {
            **dict(_keys(ButlerConfig, "butler")),
            **dict(_keys(MemoryModuleConfig, "modules.memory")),
        },
    }


def _tool(tool: Any) -> dict[str, Any]:
    mcp = _to_mcp_tool(BoundTool(tool, None))
    return {
        "toolset": tool.toolset,
        "aliases": dict(tool.aliases),
        "input": _without_wording(mcp.parameters),
        "output": _without_wording(mcp.output_schema),
        "hints": mcp.annotations.model_dump(exclude_none=True) if mcp.annotations else {},
    }


def _without_wording(schema: Any) -> Any:
    if isinstance(schema, dict):
        named = schema.get("properties")
        kept = {key: _without_wording(value) for key, value in schema.items() if key not in _WORDING}
        if isinstance(named, dict):
            kept["properties"] = {key: _without_wording(value) for key, value in named.items()}
        return kept
    return [_without_wording(each) for each in schema] if isinstance(schema, list) else schema


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield (
            " ".join(path),
            {
                (each.metavar or each.name) if each.param_type_name == "argument" else "/".join(each.opts): {
                    "required": each.required,
                    "default": _plain(each.default),
                    "flag": bool(getattr(each, "is_flag", False)),
                }
                for each in command.params
            },
        )
        return
    for name, each in inner.items():
        yield from _commands(each, (*path, name))


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
    for group, found in surface().items():
        lines = [f"  {json.dumps(name)}: {json.dumps(it, sort_keys=True)}" for name, it in sorted(found.items())]
        groups.append(f" {json.dumps(group)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(groups) + "\n}\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
