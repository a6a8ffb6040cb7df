"""The runtimes a butler's sessions can have."""

from pathlib import Path

from butlers.config import RuntimeConfig
from butlers.host.runtimes.runtime import Runtime


def make_runtime(config: RuntimeConfig, folder: Path) -> Runtime:
    """The configured runtime; a program given with a relative path lies in the butler's folder."""
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
