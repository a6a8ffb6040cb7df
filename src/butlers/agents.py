"""The agents that a butler can be connected to: one table of their files, entries, hooks and transcripts."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Literal

from butlers.errors import InvalidInput

HOOK_TIMEOUT_SECONDS = 10
"""What an agent waits for a hook. A hook ends by itself earlier."""
KEY_VARIABLE = "BUTLERS_KEY"

Format = Literal["json", "toml", "yaml"]
HookName = Literal["session-start", "turn-end", "session-end"]


class Slot(Enum):
    """A place in a template; one that stands for nothing is left out, with its key."""

    NAME = auto()
    PROGRAM = auto()
    ARGUMENTS = auto()
    COMMAND_LINE = auto()
    ENVIRONMENT = auto()
    INHERITED_VARIABLES = auto()
    URL = auto()
    HEADERS = auto()
    KEY_VARIABLE = auto()
    KEY_VARIABLES = auto()
    HOOK_NAME = auto()
    HOOK_COMMAND = auto()


Template = Mapping[str, Any]


def fill(template: Template, values: Mapping[Slot, Any]) -> dict[str, Any]:
    """Return the template with the values of its slots."""
    filled = {key: values.get(value) if isinstance(value, Slot) else value for key, value in template.items()}
    return {key: value for key, value in filled.items() if value is not None}


@dataclass(frozen=True, slots=True)
class UserFolder:
    """A folder of the user: what a variable names, or a path below the home folder."""

    path: str
    variable: str = ""
    macos_path: str = ""

    def locate(self, platform: str = sys.platform) -> Path:
        """Return the folder on this machine."""
        if self.macos_path and platform == "darwin":
            return Path.home() / self.macos_path
        named = os.environ.get(self.variable, "").strip() if self.variable else ""
        return Path(named).expanduser() if named else Path.home() / self.path


@dataclass(frozen=True, slots=True)
class FilePlace:
    """The path of one of an agent's files, for one project and for the user; the first that exists is taken.

    `{name}` stands for the butler's name.
    """

    project: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    user_folder: UserFolder = UserFolder("")

    def locate(self, name: str, project: Path | None) -> Path:
        """Return the path in the project, or the user's without one; raise `InvalidInput` if there is none."""
        folder, paths = (project, self.project) if project else (self.user_folder.locate(), self.user)
        found = [folder / path.format(name=name) for path in paths]
        if not found:
            raise InvalidInput("the agent has no settings of this kind")
        return next((path for path in found if path.exists()), found[0])


@dataclass(frozen=True, slots=True)
class Servers:
    """The file in which an agent lists its MCP servers, and the entry of a butler."""

    place: FilePlace
    table: str
    stdio: Template
    http: Template | None
    """None where the agent has no way to a server on this machine over HTTP."""
    variable: str | None
    """How an entry refers to an environment variable; None where it can't."""
    format: Format = "json"
    name_has_underscores: bool = True


@dataclass(frozen=True, slots=True)
class Hooks:
    """The file in which an agent lists its hooks."""

    place: FilePlace
    events: Mapping[str, HookName]
    handler: Template
    is_grouped: bool = True
    """Whether handlers are in groups with a matcher."""
    defaults: Template = field(default_factory=dict)
    """The other keys of a new file."""
    local: str = ""
    """The file of a project that is not shared."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A program file that an agent loads instead of running hooks."""

    place: FilePlace
    template: str
    """The file in `connect/plugins` that it is made from."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The agent's own command that tells whether it reaches its servers."""

    program: str
    arguments: tuple[str, ...]
    connected: str
    """The word for a server that the agent reaches."""
    refused: str = ""
    """The words for a server that its user has not approved."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: where its settings are, what its hooks look like, and what its user has to approve."""

    name: str
    title: str
    servers: Servers
    hooks: Hooks | Plugin | None = None
    transcript: str = ""
    """The format of its transcripts, in `butlers.transcripts.FORMATS`."""
    context_output: Literal["hook_specific", "additional_context", "text"] = "hook_specific"
    """How a hook hands memories over."""
    shows_context: bool = True
    """Whether the transcript contains the memories that a hook handed over."""
    finds_tools_by_search: bool = False
    """Whether the model sees no tool until it searches for one: then the memories name the tools."""
    project_advice: tuple[str, ...] = ()
    user_advice: tuple[str, ...] = ()
    probe: Probe | Literal["codex"] | None = None

    @property
    def has_project_files(self) -> bool:
        """Whether the agent reads settings of a project."""
        return bool(self.servers.place.project)

    @property
    def has_user_files(self) -> bool:
        """Whether the agent reads settings of the user."""
        return bool(self.servers.place.user)

    def server_name(self, butler: str) -> str:
        """Return the name of the butler's server in this agent's files."""
        return butler if self.servers.name_has_underscores else butler.replace("_", "-")


_CONFIG = UserFolder(".config", "XDG_CONFIG_HOME")
_APPLICATIONS = UserFolder(".config", "XDG_CONFIG_HOME", "Library/Application Support")
_CLAUDE = UserFolder(".claude", "CLAUDE_CONFIG_DIR")
_CLAUDE_STATE = UserFolder("", "CLAUDE_CONFIG_DIR")
_CODEX = UserFolder(".codex", "CODEX_HOME")
_GEMINI = UserFolder("", "GEMINI_CLI_HOME")

_CLINE_IN_VSCODE = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"

_STDIO: Template = {"command": Slot.PROGRAM, "args": Slot.ARGUMENTS, "env": Slot.ENVIRONMENT}
_HTTP: Template = {"url": Slot.URL, "headers": Slot.HEADERS}
_TYPED_HTTP: Template = {"type": "http", **_HTTP}
_HANDLER: Template = {"type": "command", "command": Slot.HOOK_COMMAND, "timeout": HOOK_TIMEOUT_SECONDS}

CLAUDE_CODE = Agent(
    name="claude-code",
    title="Claude Code",
    servers=Servers(
        place=FilePlace((".mcp.json",), (".claude.json",), _CLAUDE_STATE),
        table="mcpServers",
        stdio=_STDIO,
        http=_TYPED_HTTP,
        variable="${{{}}}",
    ),
    hooks=Hooks(
        place=FilePlace((".claude/settings.json",), ("settings.json",), _CLAUDE),
        events={"SessionStart": "session-start", "SessionEnd": "session-end"},
        handler=_HANDLER,
        local=".claude/settings.local.json",
    ),
    transcript="claude",
    project_advice=("Start claude in the project and approve the server when it asks.",),
    probe=Probe("claude", ("mcp", "get", "{name}"), "Connected", "Pending approval"),
)

CODEX = Agent(
    name="codex",
    title="Codex",
    servers=Servers(
        place=FilePlace((".codex/config.toml",), ("config.toml",), _CODEX),
        format="toml",
        table="mcp_servers",
        stdio={**_STDIO, "env_vars": Slot.INHERITED_VARIABLES, "startup_timeout_sec": 60},
        http={"url": Slot.URL, "bearer_token_env_var": Slot.KEY_VARIABLE},
        variable="{}",
    ),
    hooks=Hooks(
        place=FilePlace((".codex/hooks.json",), ("hooks.json",), _CODEX),
        events={"SessionStart": "session-start", "Stop": "turn-end"},
        # Codex would replace memories of more than 2,500 tokens by a preview.
        handler={**_HANDLER, "additionalContextLimit": 0},
    ),
    transcript="codex",
    finds_tools_by_search=True,
    project_advice=(
        "Start codex in the project, trust the folder, and approve the two hooks with /hooks.",
        "Until then Codex ignores the files without a word. A changed hook has to be approved again.",
    ),
    user_advice=(
        "Start codex and approve the two hooks with /hooks.",
        "Until then Codex does not run them, without a word. A changed hook has to be approved again.",
    ),
    probe="codex",
)

GEMINI = Agent(
    name="gemini",
    title="Gemini CLI",
    servers=Servers(
        place=FilePlace((".gemini/settings.json",), (".gemini/settings.json",), _GEMINI),
        table="mcpServers",
        stdio={**_STDIO, "timeout": 60_000},
        http={"httpUrl": Slot.URL, "headers": Slot.HEADERS, "timeout": 60_000},
        variable="${}",
        name_has_underscores=False,
    ),
    hooks=Hooks(
        place=FilePlace((".gemini/settings.json",), (".gemini/settings.json",), _GEMINI),
        events={"SessionStart": "session-start", "AfterAgent": "turn-end"},
        handler={
            "type": "command",
            "name": Slot.HOOK_NAME,
            "command": Slot.HOOK_COMMAND,
            "timeout": HOOK_TIMEOUT_SECONDS * 1000,
        },
    ),
    transcript="gemini",
    project_advice=("Start gemini in the project and trust the folder: until then it ignores these settings.",),
    user_advice=("Gemini CLI starts no servers in a folder that you have not trusted.",),
    probe=Probe("gemini", ("mcp", "list"), "Connected", "Disabled"),
)

OPENCODE = Agent(
    name="opencode",
    title="OpenCode",
    servers=Servers(
        place=FilePlace(
            ("opencode.json", "opencode.jsonc"), ("opencode/opencode.json", "opencode/opencode.jsonc"), _CONFIG
        ),
        table="mcp",
        stdio={
            "type": "local",
            "command": Slot.COMMAND_LINE,
            "environment": Slot.ENVIRONMENT,
            "enabled": True,
            # By default OpenCode waits five seconds for the tools, which is less than a first start may take.
            "timeout": 30_000,
        },
        http={"type": "remote", **_HTTP, "oauth": False, "enabled": True},
        variable="{{env:{}}}",
    ),
    hooks=Plugin(
        place=FilePlace((".opencode/plugins/butlers-{name}.js",), ("opencode/plugins/butlers-{name}.js",), _CONFIG),
        template="opencode.js",
    ),
    transcript="opencode",
    context_output="text",
    shows_context=False,
    probe=Probe("opencode", ("mcp", "list"), "connected"),
)

VSCODE = Agent(
    name="vscode",
    title="VS Code with GitHub Copilot",
    servers=Servers(
        place=FilePlace((".vscode/mcp.json",), ("Code/User/mcp.json",), _APPLICATIONS),
        table="servers",
        stdio={"type": "stdio", **_STDIO},
        http=_TYPED_HTTP,
        variable="${{env:{}}}",
    ),
    hooks=Hooks(
        place=FilePlace((".github/hooks/butlers-{name}.json",), (".copilot/hooks/butlers-{name}.json",)),
        events={"SessionStart": "session-start", "Stop": "turn-end"},
        handler=_HANDLER,
        is_grouped=False,
    ),
    transcript="copilot",
    shows_context=False,
    project_advice=("Open .vscode/mcp.json in VS Code, choose Start above the server, and trust it.",),
    user_advice=("Run `MCP: List Servers` in VS Code, start the server, and trust it.",),
)

CURSOR = Agent(
    name="cursor",
    title="Cursor",
    servers=Servers(
        place=FilePlace((".cursor/mcp.json",), (".cursor/mcp.json",)),
        table="mcpServers",
        stdio=_STDIO,
        http=_HTTP,
        variable="${{env:{}}}",
    ),
    hooks=Hooks(
        place=FilePlace((".cursor/hooks.json",), (".cursor/hooks.json",)),
        events={"sessionStart": "session-start", "stop": "turn-end"},
        handler={"command": Slot.HOOK_COMMAND, "timeout": HOOK_TIMEOUT_SECONDS},
        is_grouped=False,
        defaults={"version": 1},
    ),
    transcript="cursor",
    context_output="additional_context",
    shows_context=False,
    project_advice=("Open the project in Cursor, trust it, and turn the server on in Settings, Tools & MCP.",),
    user_advice=("Turn the server on in Cursor: Settings, Tools & MCP.",),
)

CLAUDE_DESKTOP = Agent(
    name="claude-desktop",
    title="Claude Desktop",
    servers=Servers(
        place=FilePlace(user=("Claude/claude_desktop_config.json",), user_folder=_APPLICATIONS),
        table="mcpServers",
        stdio=_STDIO,
        http=None,
        variable=None,
    ),
    user_advice=("Quit Claude Desktop and start it again. It has no hooks: tell it to call memory_recall.",),
)

WINDSURF = Agent(
    name="windsurf",
    title="Windsurf",
    servers=Servers(
        place=FilePlace(user=(".codeium/windsurf/mcp_config.json",)),
        table="mcpServers",
        stdio=_STDIO,
        http={"serverUrl": Slot.URL, "headers": Slot.HEADERS},
        variable="${{env:{}}}",
    ),
    user_advice=("Refresh the servers in Windsurf's settings. Tell it in AGENTS.md to call memory_recall.",),
)

ZED = Agent(
    name="zed",
    title="Zed",
    servers=Servers(
        place=FilePlace((".zed/settings.json",), ("zed/settings.json",), _CONFIG),
        table="context_servers",
        stdio=_STDIO,
        http=_HTTP,
        variable=None,
    ),
    project_advice=("Trust the project in Zed. Tell it in AGENTS.md to call memory_recall.",),
    user_advice=("Tell Zed in AGENTS.md to call memory_recall.",),
)

CLINE = Agent(
    name="cline",
    title="Cline",
    servers=Servers(
        # The program of its own, or the extension of VS Code.
        place=FilePlace(
            user=(
                ".cline/data/settings/cline_mcp_settings.json",
                f".config/{_CLINE_IN_VSCODE}",
                f"Library/Application Support/{_CLINE_IN_VSCODE}",
            )
        ),
        table="mcpServers",
        stdio={**_STDIO, "disabled": False, "autoApprove": []},
        http={"type": "streamableHttp", **_HTTP, "disabled": False, "autoApprove": []},
        variable="${{env:{}}}",
    ),
    user_advice=("Tell Cline in AGENTS.md to call memory_recall.",),
)

GOOSE = Agent(
    name="goose",
    title="Goose",
    servers=Servers(
        place=FilePlace(user=("goose/config.yaml",), user_folder=_CONFIG),
        format="yaml",
        table="extensions",
        stdio={
            "type": "stdio",
            "name": Slot.NAME,
            "description": "The butler's memory",
            "enabled": True,
            "cmd": Slot.PROGRAM,
            "args": Slot.ARGUMENTS,
            "envs": Slot.ENVIRONMENT,
            "timeout": 300,
        },
        http={
            "type": "streamable_http",
            "name": Slot.NAME,
            "description": "The butler's memory",
            "enabled": True,
            "uri": Slot.URL,
            "headers": Slot.HEADERS,
            "env_keys": Slot.KEY_VARIABLES,
            "timeout": 300,
        },
        variable="${{{}}}",
    ),
    user_advice=("Tell Goose in AGENTS.md or .goosehints to call memory_recall.",),
)

AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        CLAUDE_CODE,
        CODEX,
        GEMINI,
        OPENCODE,
        VSCODE,
        CURSOR,
        CLAUDE_DESKTOP,
        WINDSURF,
        ZED,
        CLINE,
        GOOSE,
    )
}


def find_agent(name: str) -> Agent:
    """Return the agent of this name; raise `InvalidInput` if there is none."""
    if name not in AGENTS:
        hint = f"Name one of {', '.join(AGENTS)}, or pass --print alone for any other MCP client."
        raise InvalidInput(f"{name} is not a supported agent" if name else "no agent is named", hint=hint)
    return AGENTS[name]
