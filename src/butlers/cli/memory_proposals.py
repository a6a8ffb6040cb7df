"""The `butlers memory proposals` command."""

from typing import Annotated

import typer

from butlers.cli.memory_client import Key, tool_command
from butlers.cli.output import HERE, Folder


@tool_command("memory_proposals")
def proposals(
    folder: Folder = HERE,
    accept: Annotated[str | None, typer.Option(help="Store this proposal, after checking it again.")] = None,
    decline: Annotated[str | None, typer.Option(help="Decline this proposal.")] = None,
    idempotency_key: Key = None,
) -> None:
    """List what consolidation proposes with `review = "before"`, or accept or decline one proposal.

    Example: `butlers memory proposals . --accept 3f2a8c1e-…`
    """


COMMANDS = (proposals,)
