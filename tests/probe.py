"""Test module `probe`: tools that return the caller, wait, fail and write.

`python -m probe DIR` runs a butler with the module.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from butlers import app
from butlers.caller import Caller
from butlers.config import ModuleConfig
from butlers.contract import Check, Job, JobResult, Spawner, Tool, count_rows, tool
from butlers.db import Database
from butlers.errors import Conflict
from butlers.migrate import Branch


class ProbeConfig(ModuleConfig):
    """The configuration of the probe."""

    cron: str = "0 0 1 1 *"
    fail: bool = False


class Who(BaseModel):
    """The caller of a tool."""

    tenant: str
    actor: str
    roles: list[str]
    elevated: bool
    butler: str
    request_id: str
    home_tenant: str | None


class Written(BaseModel):
    """The number of rows."""

    rows: int


@tool(read_only=True)
async def probe_whoami(_: Database, caller: Caller) -> Who:
    """Return the caller."""
    return Who(
        tenant=caller.tenant,
        actor=caller.actor,
        roles=sorted(caller.roles),
        elevated=caller.elevated,
        butler=caller.butler,
        request_id=caller.request_id,
        home_tenant=caller.home_tenant,
    )


@tool()
async def probe_write(
    database: Database,
    caller: Caller,
    text: Annotated[str, Field(min_length=1, max_length=100)],
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0,
) -> Written:
    """Write one row in a transaction that stays open for some seconds."""
    async with database.transaction(caller, seconds=30) as tx:
        await tx.execute("insert into probe_rows (tenant_id, text) values ($1, $2)", caller.tenant, text)
        if seconds:
            await tx.execute("select pg_sleep($1)", seconds)
        rows = await tx.fetchval("select count(*) from probe_rows where tenant_id = $1", caller.tenant)
    return Written(rows=rows)


@tool(read_only=True)
async def probe_sleep(_: Database, __: Caller, seconds: Annotated[float, Field(ge=0, le=60)]) -> Written:
    """Wait."""
    await asyncio.sleep(seconds)
    return Written(rows=0)


@tool(read_only=True)
async def probe_rows(_: Database, __: Caller, asked: int, returned: int) -> Written:
    """Count rows asked for and returned."""
    count_rows(asked=asked, returned=returned)
    return Written(rows=returned)


@tool(read_only=True)
async def probe_fail(database: Database, caller: Caller, how: str) -> Written:
    """Fail in the given way."""
    if how == "fault":
        raise Conflict("it is taken", hint="Take another.")
    if how == "slow query":
        async with database.transaction(caller, seconds=0.1) as tx:
            await tx.execute("select pg_sleep(5)")
    if how == "constraint":
        async with database.transaction(caller) as tx:
            await tx.execute("insert into probe_rows (tenant_id, text) values ($1, '')", caller.tenant)
    raise KeyError(f"a secret: {how}")


class ProbeModule:
    """The probe module."""

    name: ClassVar[str] = "probe"
    dependencies: ClassVar[tuple[str, ...]] = ()
    config_model: ClassVar[type[ModuleConfig]] = ProbeConfig
    branch: ClassVar[Branch | None] = Branch(
        label="probe",
        location=Path(__file__).parent / "probe_migrations",
        head="probe_001",
        rights={"table probe_rows": "select, insert, update, delete"},
    )

    def __init__(self) -> None:
        self.config = ProbeConfig()
        self.database: Database | None = None
        self.runs = 0

    @property
    def state(self) -> Any:
        return self.database

    async def on_startup(self, config: ModuleConfig, database: Database, butler: str, spawner: Spawner) -> None:
        assert isinstance(config, ProbeConfig)
        if config.fail:
            raise RuntimeError("told to fail")
        self.config, self.database = config, database

    async def on_shutdown(self) -> None:
        self.database = None

    def tools(self) -> Sequence[Tool]:
        return (probe_whoami, probe_write, probe_sleep, probe_rows, probe_fail)

    def jobs(self) -> Sequence[Job]:
        return (Job("probe_job", self.config.cron, self._job),)

    async def _job(self, caller: Caller) -> JobResult:
        self.runs += 1
        return {"runs": self.runs}

    async def gauges(self) -> Mapping[str, float]:
        return {"runs": float(self.runs)}

    async def checks(self) -> Sequence[Check]:
        return (Check("probe", "ok", "well"),)


MODULES = (*app.MODULES, ProbeModule)


if __name__ == "__main__":
    from butlers.environment import read_environment
    from butlers.host import logs

    logs.configure_logging(read_environment().log_level, read_environment().log_format)
    folder, *flags = sys.argv[1:]
    if "--stdio" in flags:
        asyncio.run(app.serve_stdio(Path(folder), modules=MODULES))
    else:
        asyncio.run(
            app.serve_http(
                Path(folder),
                0,
                modules=MODULES,
                announce=lambda at: print(f"ready: {at}", file=sys.stderr, flush=True),
            )
        )
