"""Runtimes that run a butler's sessions."""

from pathlib import Path

from butlers.config import RuntimeConfig
from butlers.host.runtimes.runtime import Runtime


def make_runtime(config: RuntimeConfig, folder: Path) -> Runtime:
    """Return the configured runtime. A relative program path is relative to the butler's folder."""
    if config.type == "openai":
        from butlers.host.runtimes.openai import OpenAiRuntime

        return OpenAiRuntime(config)
    program, *rest = config.command
    command = [str(folder.absolute() / program) if "/" in program else program, *rest]
    if config.type == "command":
        from butlers.host.runtimes.command import CommandRuntime

        return CommandRuntime(command, folder.absolute())
    from butlers.host.runtimes.claude import ClaudeRuntime

    return ClaudeRuntime(command)
