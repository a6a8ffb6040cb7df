"""A memory opened in the test process, and a sample tenant with every kind of memory in every state."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from butlers import app
from butlers.app import Butler
from butlers.caller import Caller
from butlers.environment import Environment
from butlers.modules.memory.operations import export_import
from butlers.modules.memory.runtime import Memory
from butlers.modules.memory.tools import TOOLS

FUNCTIONS = {tool.name: tool.function for tool in TOOLS}


@dataclass
class OpenedMemory:
    """A butler that is open in this process."""

    butler: Butler
    memory: Memory

    def new_caller(self) -> Caller:
        """Return a caller with a new tenant."""
        return self.butler.caller(f"t{uuid4().hex[:12]}")

    async def call(self, caller: Caller, tool: str, *values, **arguments):
        return await FUNCTIONS[tool](self.memory, caller, *values, **arguments)

    async def run(self, statement: str, *arguments) -> None:
        """Run a statement as the administrator."""
        connection = await asyncpg.connect(self.butler.location.admin_dsn)
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    async def export(self, caller: Caller, **options) -> list[str]:
        out = io.StringIO()
        await export_import.export_tenant(self.memory, caller, out.write, **options)
        return out.getvalue().splitlines()

    async def import_(self, caller: Caller, lines: list[str], **options) -> export_import.ImportReport:
        file = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        return await export_import.import_file(self.memory, caller, file, **options)


@asynccontextmanager
async def open_memory(folder: Path, name: str, environment: Environment) -> AsyncIterator[OpenedMemory]:
    """Write and open a butler, with the embedding model of the test run."""
    folder.mkdir()
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n[modules.memory]\nenabled = true\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUTLERS_HOME", str(environment.home))
        async with app.open_butler(app.load_configuration(folder), environment) as butler:
            yield OpenedMemory(butler, butler.modules[0].state)


async def sample_tenant(opened: OpenedMemory) -> Caller:
    """Return a caller whose tenant has every kind of memory in every state."""
    caller = opened.new_caller()
    butler = opened.memory.butler
    episodes = [
        (await opened.call(caller, "memory_store_episode", f"Ada met Grace for the {n}. time", butler))["id"]
        for n in range(4)
    ]
    await opened.call(caller, "memory_forget", "episode", episodes[1])
    facts = [
        (
            await opened.call(
                caller, "memory_store_fact", "Ada", "town", f"Town {n} \u2028 'ünïcode' \\u0041 😀", tags=["a"]
            )
        )["id"]
        for n in range(3)
    ]
    forgotten = (
        await opened.call(caller, "memory_store_fact", "Ada", "shoe_size", "thirty-eight", permanence="permanent")
    )["id"]
    await opened.call(caller, "memory_forget", "fact", forgotten)
    await opened.call(caller, "memory_store_fact", "Ada", "diet", "eats no meat", scope=butler, importance=9.75)
    rule = (await opened.call(caller, "memory_store_rule", "Ask Ada before you book", tags=["travel"]))["id"]
    await opened.call(caller, "memory_mark_helpful", rule)
    await opened.call(caller, "memory_mark_harmful", rule, "she was asleep")
    await opened.call(
        caller, "memory_forget", "rule", (await opened.call(caller, "memory_store_rule", "Shout"))["id"]
    )
    await _add_by_sql(opened, caller, episodes, facts[-1])
    return caller


async def _add_by_sql(opened: OpenedMemory, caller: Caller, episodes: list[str], fact: str) -> None:
    """Write states that no tool writes directly."""
    tenant = caller.tenant
    await opened.run(
        "update episodes set consolidation_status = 'dead_letter', consolidation_attempts = 5,"
        " last_consolidation_error = 'no JSON', next_consolidation_retry_at = now() where tenant_id = $1 and id = $2",
        tenant,
        episodes[2],
    )
    await opened.run(
        "insert into entities (tenant_id, canonical_name, entity_type, aliases, metadata)"
        """ values ($1, 'Grace', 'person', '{G,"the admiral"}', '{"born": 1906, "ratio": 0.1}')""",
        tenant,
    )
    await opened.run(
        "update facts set entity_id = (select id from entities where tenant_id = $1), source_episode_id = $3,"
        """ metadata = '{"status": "fading", "deep": [null, {"a": [1.5, true]}]}', last_confirmed_at = '2020-01-02'"""
        " where tenant_id = $1 and id = $2",
        tenant,
        fact,
        episodes[0],
    )
    for target in (episodes[0], str(uuid4())):
        await opened.run(
            "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
            " values ($1, 'fact', $2, 'episode', $3, 'derived_from')",
            tenant,
            fact,
            target,
        )
