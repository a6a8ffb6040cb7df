"""The `butlers trigger` command."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from butlers.cli.memory_client import Tenant
from butlers.cli.output import AsJson, Folder, command, show


@command
async def trigger(
    folder: Folder,
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="The prompt of the session.")],
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Run one session with memory and print its answer.

    Example: `butlers trigger . "What do you know about Ada?"`
    """
    from butlers import app
    from butlers.cli import memory_views
    from butlers.environment import read_environment
    from butlers.host.runtimes import make_runtime

    config = app.load_configuration(folder)
    # Before the database is opened: a missing runtime is reported at once.
    make_runtime(config.butler.runtime, config.folder).check()
    # SIGTERM must end the processes that the session started.
    app.cancel_on_sigterm()
    async with (
        app.open_butler(config, read_environment()) as butler,
        app.open_server(butler, over_http=False, with_jobs=False),
    ):
        result = await butler.spawner.spawn(butler.caller(tenant), prompt, trigger_source="cli")
    if not as_json:
        show(result.text.rstrip(), memory_views.plain, as_json=False)
        return
    usage = result.usage and asdict(result.usage)
    typer.echo(json.dumps({"session_id": str(result.session_id), "answer": result.text, "usage": usage}))


COMMANDS = (trigger,)
