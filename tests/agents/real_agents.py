"""The real agents: how each is told where its model is, and how one session of it is run."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from models import Model

from .conftest import Run
from .model_server import questions, tools

PROMPT = "Which tea do I drink?"
ANSWER = "You drink Darjeeling."


@dataclass(frozen=True)
class RealAgent:
    """One agent of `butlers.agents.AGENTS` as a program."""

    name: str
    command: tuple[str, ...]
    variables: dict[str, str]
    """`{url}` is the address of the model server."""
    prepare: Callable[[Path, Path, str], None]
    """Write the settings that a user of this agent has: home folder, project, address of the model server."""
    shows_tools: bool = True
    """Whether the model sees the tools of MCP servers in its first request."""


def _prepare_claude(owner: Path, project: Path, url: str) -> None:
    del owner, url
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"permissions": {"allow": ["Bash(ls:*)"]}}')
    (project / ".mcp.json").write_text('{\n    "mcpServers": {}\n}\n')


def _prepare_codex(owner: Path, project: Path, url: str) -> None:
    (owner / ".codex").mkdir()
    (owner / ".codex" / "config.toml").write_text(
        f'# My settings\nmodel = "test-model"\nmodel_provider = "test"\n\n'
        f'[model_providers.test]\nname = "test"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        f'env_key = "MODEL_KEY"\n\n'
        f'[projects."{project}"]\ntrust_level = "trusted"'
    )
    (project / ".codex").mkdir()
    (project / ".codex" / "config.toml").write_text("# Nothing yet\n")


def _prepare_gemini(owner: Path, project: Path, url: str) -> None:
    del url
    (owner / ".gemini").mkdir()
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (owner / ".gemini" / "settings.json").write_text(json.dumps(settings))
    (project / ".gemini").mkdir()
    (project / ".gemini" / "settings.json").write_text(
        '{\n\t// mine\n\t"ui": {"hideBanner": true}, // quiet\n\t"hooks": {}\n}\n'
    )


def _prepare_opencode(owner: Path, project: Path, url: str) -> None:
    options = {"baseURL": f"{url}/v1", "apiKey": "any"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "test",
        "options": options,
        "models": {"test": {"name": "t"}},
    }
    settings = {
        "model": "test/test",
        "small_model": "test/test",
        "provider": {"test": provider},
        "autoupdate": False,
        "share": "disabled",
    }
    (project / "opencode.jsonc").write_text("// The model server of the tests\n" + json.dumps(settings, indent=4))
    for folder in (project / ".opencode", owner / ".config" / "opencode"):
        _skip_installation(folder)


def _skip_installation(folder: Path) -> None:
    """Tell OpenCode that it has installed its own package for plugins, which the butler's plugin does not use."""
    (folder / "node_modules").mkdir(parents=True)
    dependencies = {"dependencies": {"@opencode-ai/plugin": "*"}}
    (folder / "package.json").write_text(json.dumps(dependencies))
    (folder / "package-lock.json").write_text(json.dumps({"packages": {"": dependencies}}))


REAL_AGENTS = {
    agent.name: agent
    for agent in (
        RealAgent(
            "claude-code",
            ("claude", "-p", PROMPT),
            {
                "ANTHROPIC_BASE_URL": "{url}",
                "ANTHROPIC_API_KEY": "any",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
                # The first request waits for the tools, however busy the machine is.
                "MCP_TIMEOUT": "60000",
                "MCP_CONNECT_TIMEOUT_MS": "60000",
                "MCP_CONNECTION_NONBLOCKING": "false",
            },
            _prepare_claude,
        ),
        RealAgent(
            "codex",
            ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust", PROMPT),
            {"MODEL_KEY": "any"},
            _prepare_codex,
            shows_tools=False,
        ),
        RealAgent(
            "gemini",
            ("gemini", "--approval-mode", "yolo", "-m", "gemini-2.5-pro", "-p", PROMPT),
            {
                "GEMINI_API_KEY": "any",
                "GOOGLE_GEMINI_BASE_URL": "{url}",
                "GEMINI_CLI_TRUST_WORKSPACE": "true",
            },
            _prepare_gemini,
        ),
        RealAgent(
            "opencode",
            ("opencode", "run", PROMPT),
            {
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            },
            _prepare_opencode,
        ),
    )
}

each_agent = pytest.mark.parametrize("agent", REAL_AGENTS.values(), ids=list(REAL_AGENTS))


async def run_session(agent: RealAgent, run: Run, model: Model, fact: str) -> None:
    """Run a session in which the model is asked with this fact, and with tools if the agent shows them.

    On a busy machine a hook or a server may take too long for the agent, and the session continues without it: then
    it is run again.
    """
    for _ in range(3):
        done = await run(*agent.command, **session_variables(agent, model.url))
        assert (done.returncode, ANSWER in done.stdout) == (0, True), done.stderr
        if fact in questions(model)[-1] and ("memory_recall" in tools(model)) == agent.shows_tools:
            return


def session_variables(agent: RealAgent, url: str) -> dict[str, str]:
    """The environment of a session with a model server."""
    return {name: value.format(url=url) for name, value in agent.variables.items()}
