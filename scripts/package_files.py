"""Generator of the files that other programs install butlers from (`make package`)."""

import json
import sys
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from butlers.agents import CLAUDE_CODE, CODEX, GEMINI, HOOK_TIMEOUT_SECONDS, Agent, Hooks
from butlers.modules.memory.tools import TOOLS

ROOT = Path(__file__).parents[1]
_FOLDER = ROOT / "package"
_SERVER = "butler"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_MATCHER = "startup|resume|clear|compact"

# Claude Code replaces the variable; Codex does not, and starts the server in the folder of the plugin.
_START = 'root="${CLAUDE_PLUGIN_ROOT}"; [ -n "$root" ] || root=$PWD; exec sh "$root/butler.sh" run'

Json = dict[str, Any]


@cache
def description() -> Json:
    """The description, with the version and the licence of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = tomllib.loads((_FOLDER / "description.toml").read_text(encoding="utf-8"))
    return {**told, "version": project["version"], "license": project["license"]}


def registry_name() -> str:
    """The name in the MCP registry, which the README repeats as a proof of ownership."""
    return f"io.github.{description()['owner']}/{description()['name']}"


def registry_server() -> Json:
    """The entry of the MCP registry."""
    told = description()
    package = {
        "registryType": "pypi",
        "identifier": told["name"],
        "version": told["version"],
        "runtimeHint": "uvx",
        "transport": {"type": "stdio"},
        "packageArguments": [
            {"type": "positional", "value": "run"},
            {
                "type": "positional",
                "valueHint": "butler_folder",
                "description": "The folder with butler.toml; `butlers init` makes one",
                "format": "filepath",
                "isRequired": True,
            },
            {"type": "positional", "value": "--stdio"},
        ],
        "environmentVariables": [_variable(name, each) for name, each in told["variables"].items()],
    }
    return {
        "$schema": _SCHEMA,
        "name": registry_name(),
        "title": told["title"],
        "description": told["description"],
        "repository": {"url": f"https://github.com/{told['owner']}/{told['name']}", "source": "github"},
        "version": told["version"],
        "packages": [package],
    }


def _variable(name: str, told: Mapping[str, Any]) -> Json:
    more = {"format": told["format"]} if "format" in told else {}
    return {
        "name": name,
        "description": told["description"],
        **more,
        "isSecret": told.get("is_secret", False),
        "isRequired": False,
    }


def marketplace() -> Json:
    """The list of plugins that Claude Code and Codex read from the repository."""
    told = description()
    plugin = {"name": told["name"], "source": f"./plugins/{told['name']}", "description": told["description"]}
    return {
        "name": told["name"],
        "owner": {"name": told["author"]},
        "metadata": {"description": told["description"]},
        "plugins": [plugin],
    }


def plugin() -> Json:
    """The manifest of the plugin."""
    told = description()
    same = {key: told[key] for key in ("name", "version", "description", "license", "keywords")}
    return {**same, "author": {"name": told["author"]}}


def plugin_servers() -> Json:
    """The server of the plugin; Codex hands a variable on only if it is named."""
    server = {
        "command": "sh",
        "args": ["-c", _START],
        "cwd": ".",
        "env_vars": [description()["folder_variable"], *description()["variables"]],
    }
    return {"mcpServers": {_SERVER: server}}


def plugin_hooks() -> Json:
    """The hooks of the plugin: those of Claude Code and of Codex in one file, which both run."""
    program = '"${CLAUDE_PLUGIN_ROOT}/butler.sh"'
    events: dict[str, list[Json]] = {}
    for agent in (CLAUDE_CODE, CODEX):
        for event, handler in _handlers(agent, program, HOOK_TIMEOUT_SECONDS):
            matcher = {"matcher": _MATCHER} if event == "SessionStart" else {}
            group = events.setdefault(event, [{**matcher, "hooks": []}])[0]
            group["hooks"].append(handler)
    return {"hooks": events}


def gemini_extension() -> Json:
    """The manifest of the Gemini extension."""
    told = description()
    server = {"command": "sh", "args": ["${extensionPath}/butler.sh", "run"], "timeout": 60_000}
    return {
        "name": told["name"],
        "version": told["version"],
        "description": told["description"],
        "mcpServers": {_SERVER: server},
        "contextFileName": "GEMINI.md",
    }


def gemini_hooks() -> Json:
    """The hooks of the Gemini extension."""
    handlers = _handlers(GEMINI, '"${extensionPath}/butler.sh"', HOOK_TIMEOUT_SECONDS * 1000)
    return {"hooks": {event: [{"hooks": [handler]}] for event, handler in handlers}}


def _handlers(agent: Agent, program: str, timeout: int) -> list[tuple[str, Json]]:
    """The handlers of an agent by event."""
    if not isinstance(agent.hooks, Hooks):
        raise TypeError(agent.name)
    return [
        (event, {"type": "command", "command": f"sh {program} hook {hook} {agent.name}", "timeout": timeout})
        for event, hook in agent.hooks.events.items()
    ]


def bundle_manifest() -> Json:
    """The manifest of the bundle for Claude Desktop, which brings uv."""
    told = description()
    folder = {
        "type": "directory",
        "title": "Butler folder",
        "description": "The folder of the butler; it is created if it has no butler.toml",
        "required": True,
        "default": f"${{HOME}}/{told['default_folder']}",
    }
    command = ["run", "--directory", "${__dirname}", "server.py", "${user_config.folder}"]
    return {
        "manifest_version": "0.4",
        "name": told["name"],
        "display_name": told["title"],
        "version": told["version"],
        "description": told["description"],
        "long_description": (
            f"{told['description']}. The first start downloads about 300 MB: Python packages with a PostgreSQL "
            "server, and the embedding model."
        ),
        "author": {"name": told["author"]},
        "license": told["license"],
        "keywords": told["keywords"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": command, "env": {}},
        },
        "user_config": {"folder": folder},
        "tools": [
            {"name": tool.name, "description": _summary(tool.function)} for tool in TOOLS if tool.toolset == "core"
        ],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": told["python"]}},
    }


def _summary(function: Callable[..., Any]) -> str:
    """The first sentence of a tool's description."""
    return (function.__doc__ or "").strip().split("\n\n", 1)[0].replace("\n", " ").split(". ", 1)[0].rstrip(".") + "."


def bundle_project() -> str:
    """The pyproject.toml of the bundle."""
    told = description()
    return (
        f'[project]\nname = "{told["name"]}-bundle"\nversion = "{told["version"]}"\n'
        f'requires-python = "{told["python"]}"\ndependencies = ["{told["name"]}=={told["version"]}"]\n'
    )


def launcher() -> str:
    """The program that plugins start."""
    return _template("butler.sh").format(**description())


def instructions() -> str:
    """The skill without its frontmatter, for agents that have no skills."""
    return _template("SKILL.md").split("---\n", 2)[2].lstrip()


def _template(name: str) -> str:
    return (_FOLDER / "templates" / name).read_text(encoding="utf-8")


def _as_json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def render() -> dict[Path, str]:
    """Every generated file with its text."""
    told = description()
    plugin_folder, gemini, bundle = (
        ROOT / "plugins" / told["name"],
        ROOT / "extensions/gemini",
        ROOT / "extensions/mcpb",
    )
    return {
        ROOT / "server.json": _as_json(registry_server()),
        ROOT / ".claude-plugin" / "marketplace.json": _as_json(marketplace()),
        plugin_folder / ".claude-plugin" / "plugin.json": _as_json(plugin()),
        plugin_folder / ".mcp.json": _as_json(plugin_servers()),
        plugin_folder / "hooks" / "hooks.json": _as_json(plugin_hooks()),
        plugin_folder / "butler.sh": launcher(),
        plugin_folder / "README.md": _template("README.md").format(**told),
        plugin_folder / "skills" / "memory" / "SKILL.md": _template("SKILL.md"),
        gemini / "gemini-extension.json": _as_json(gemini_extension()),
        gemini / "hooks" / "hooks.json": _as_json(gemini_hooks()),
        gemini / "butler.sh": launcher(),
        gemini / "GEMINI.md": instructions(),
        bundle / "manifest.json": _as_json(bundle_manifest()),
        bundle / "pyproject.toml": bundle_project(),
        bundle / "server.py": _template("server.py"),
    }


def main() -> int:
    """Write each file."""
    for path, text in render().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
