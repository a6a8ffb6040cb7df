"""The `butlers jobs` commands: list scheduled jobs and run one now."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show_rows

app = typer.Typer(help="List scheduled jobs, or run one now.", no_args_is_help=True)
_LAYOUT = "job / cron | status / next_run: / started_at: / error:"


@app.command("list")
@command
async def list_jobs(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """List all jobs with their next run, their last run and its result.

    Example: `butlers jobs list .`
    """
    from butlers import app as butlers

    async with butlers.open_scheduler(folder) as (_, scheduler):
        statuses = await scheduler.job_statuses()
    show_rows([asdict(status) for status in statuses], _LAYOUT, as_json=as_json)


@app.command("run")
@command
async def run_now(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, from `butlers jobs list`.")],
    as_json: AsJson = False,
) -> None:
    """Run one job now and print its result. The run is recorded like a scheduled one.

    Example: `butlers jobs run . decay_sweep`
    """
    from butlers import app as butlers
    from butlers.errors import NotFound

    async with butlers.open_scheduler(folder) as (butler, scheduler):
        jobs = {job.name: job for job in butlers.all_jobs(butler)}
        if name not in jobs:
            raise NotFound(f"there is no job {name}", hint=f"There are: {', '.join(jobs) or 'none'}.")
        result = dict(await scheduler.run(jobs[name]))
    if as_json:
        typer.echo(json.dumps(result, default=str))
        return
    typer.echo(name)
    show_rows([{"what": what, "value": value} for what, value in result.items()], "what | value", as_json=False)
