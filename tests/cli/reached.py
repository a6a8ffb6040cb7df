"""A memory of this process, and a tenant that has lived: some of everything, in every state."""

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
class Reached:
    """An open butler, used by whoever asks."""

    butler: Butler
    memory: Memory

    def somebody(self) -> Caller:
        """A caller whose tenant nobody else has."""
        return self.butler.caller(f"t{uuid4().hex[:12]}")

    async def call(self, caller: Caller, tool: str, *words, **arguments):
        return await FUNCTIONS[tool](self.memory, caller, *words, **arguments)

    async def run(self, statement: str, *arguments) -> None:
        """As the administrator."""
        connection = await asyncpg.connect(self.butler.place.admin_dsn)
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    async def exported(self, caller: Caller, **options) -> list[str]:
        out = io.StringIO()
        await export_import.export_tenant(self.memory, caller, out.write, **options)
        return out.getvalue().splitlines()

    async def imported(self, caller: Caller, lines: list[str], **options) -> export_import.ImportReport:
        file = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
        return await export_import.import_file(self.memory, caller, file, **options)


@asynccontextmanager
async def reached(folder: Path, name: str, environment: Environment) -> AsyncIterator[Reached]:
    """The butler of that name, opened in this process with the model of the test run."""
    folder.mkdir()
    (folder / "butler.toml").write_text(f'[butler]\nname = "{name}"\nport = 0\n[modules.memory]\nenabled = true\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUTLERS_HOME", str(environment.home))
        async with app.open_butler(app.load_configuration(folder), environment) as butler:
            yield Reached(butler, butler.modules[0].state)


async def lived(at: Reached) -> Caller:
    """A tenant with every kind of memory in every state."""
    who = at.somebody()
    butler = at.memory.butler
    episodes = [
        (await at.call(who, "memory_store_episode", f"Ada met Grace for the {n}. time", butler))["id"]
        for n in range(4)
    ]
    await at.call(who, "memory_forget", "episode", episodes[1])
    facts = [
        (await at.call(who, "memory_store_fact", "Ada", "town", f"Town {n} \u2028 'ünïcode' \\u0041 😀", tags=["a"]))[
            "id"
        ]
        for n in range(3)
    ]
    gone = (await at.call(who, "memory_store_fact", "Ada", "shoe_size", "thirty-eight", permanence="permanent"))["id"]
    await at.call(who, "memory_forget", "fact", gone)
    await at.call(who, "memory_store_fact", "Ada", "diet", "eats no meat", scope=butler, importance=9.75)
    rule = (await at.call(who, "memory_store_rule", "Ask Ada before you book", tags=["travel"]))["id"]
    await at.call(who, "memory_mark_helpful", rule)
    await at.call(who, "memory_mark_harmful", rule, "she was asleep")
    await at.call(who, "memory_forget", "rule", (await at.call(who, "memory_store_rule", "Shout"))["id"])
    await _beyond_the_tools(at, who, episodes, facts[-1])
    return who


async def _beyond_the_tools(at: Reached, who: Caller, episodes: list[str], fact: str) -> None:
    """What later features write, and what time does."""
    tenant = who.tenant
    await at.run(
        "update episodes set consolidation_status = 'dead_letter', consolidation_attempts = 5,"
        " last_consolidation_error = 'no JSON', next_consolidation_retry_at = now() where tenant_id = $1 and id = $2",
        tenant,
        episodes[2],
    )
    await at.run(
        "insert into entities (tenant_id, canonical_name, entity_type, aliases, metadata)"
        """ values ($1, 'Grace', 'person', '{G,"the admiral"}', '{"born": 1906, "ratio": 0.1}')""",
        tenant,
    )
    await at.run(
        "update facts set entity_id = (select id from entities where tenant_id = $1), source_episode_id = $3,"
        """ metadata = '{"status": "fading", "deep": [null, {"a": [1.5, true]}]}', last_confirmed_at = '2020-01-02'"""
        " where tenant_id = $1 and id = $2",
        tenant,
        fact,
        episodes[0],
    )
    for target in (episodes[0], str(uuid4())):
        await at.run(
            "insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation)"
            " values ($1, 'fact', $2, 'episode', $3, 'derived_from')",
            tenant,
            fact,
            target,
        )
