"""`butlers jobs`: what runs by the clock, looked at and run by hand."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from butlers.cli.output import HERE, AsJson, Folder, command, show

app = typer.Typer(help="See when jobs run and how they went; run one now.", no_args_is_help=True)


@app.command("list")
@command
async def listed(folder: Folder = HERE, as_json: AsJson = False) -> None:
    """Show each job: when it runs next, when it ran last and how that went.

    Example: `butlers jobs list .`
    """
    from butlers import app as butlers

    async with butlers.open_scheduler(folder) as (_, scheduler):
        standings = await scheduler.job_statuses()
    rows = [asdict(each) for each in standings]
    if not as_json:
        for row in rows:
            moments = ("next_run", "started_at")
            row |= {name: f"{row[name].astimezone():%Y-%m-%d %H:%M:%S}" for name in moments if row[name]}
    show(rows, ("job", "cron", "next_run", "started_at", "status", "error"), as_json=as_json)


@app.command("run")
@command
async def run_now(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The job's name, as `butlers jobs list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Run one job now and print what it did; it is recorded like any other run.

    Example: `butlers jobs run . decay_sweep`
    """
    from butlers import app as butlers
    from butlers.errors import NotFound

    async with butlers.open_scheduler(folder) as (butler, scheduler):
        jobs = {job.name: job for job in butlers.all_jobs(butler)}
        if name not in jobs:
            raise NotFound(f"there is no job {name}", hint=f"There are: {', '.join(jobs) or 'none'}.")
        done = dict(await scheduler.run(jobs[name]))
    if as_json:
        typer.echo(json.dumps(done, default=str))
        return
    rows = [{"what": what, "value": value} for what, value in done.items()]
    show(rows, ("what", "value"), as_json=False, title=name)
