"""The catalog of a butler's database as text, to compare two databases."""

from database.butler_processes import connected

_OBJECTS = """
    select 'policy', tablename::text, policyname::text, concat(cmd, roles, qual, with_check)
      from pg_policies
    union all
    select 'column', attrelid::regclass::text, attname, concat(
               attnum, atttypid::regtype, attnotnull, attgenerated, attacl,
               (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attrelid and adnum = attnum)
           )
      from pg_attribute a
      join pg_class c on c.oid = a.attrelid and c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'v')
     where attnum > 0
    union all
    select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
    union all
    select 'constraint', conrelid::regclass::text, conname, concat(pg_get_constraintdef(oid), convalidated)
      from pg_constraint where connamespace = 'public'::regnamespace
    union all
    select 'trigger', tgrelid::regclass::text, tgname, concat(tgenabled, pg_get_triggerdef(oid))
      from pg_trigger where not tgisinternal
    union all
    select 'relation', relname, concat(reloptions, relowner::regrole, relacl),
           concat(relkind, relrowsecurity, relforcerowsecurity, obj_description(oid, 'pg_class'))
      from pg_class where relnamespace = 'public'::regnamespace
    union all
    select 'view', viewname, '', definition from pg_views where schemaname = 'public'
    union all
    select 'function', p.oid::regprocedure::text, concat(proowner::regrole, proacl), pg_get_functiondef(p.oid)
      from pg_proc p
     where pronamespace = 'public'::regnamespace
       and not exists (select from pg_depend where objid = p.oid and deptype = 'e')
    union all
    select 'extension', extname, '', '' from pg_extension
    union all
    select 'event trigger', evtname, '', '' from pg_event_trigger
    union all
    select 'schema', nspname, nspowner::regrole::text, nspacl::text
      from pg_namespace where nspname !~ '^pg_temp|^pg_toast'
"""


async def describe(dsn: str) -> list[tuple[str, ...]]:
    """Return every object of a database with its definition, owner and rights."""
    async with connected(dsn) as connection:
        database = await connection.fetchval("select current_database()")
        rows = await connection.fetch(_OBJECTS)
    # The names of the roles start with that of the database.
    return sorted(tuple(str(value).replace(database, "butler") for value in row) for row in rows)
