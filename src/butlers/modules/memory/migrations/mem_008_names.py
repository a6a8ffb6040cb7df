"""Finding entities by name: folded names, and a way to each kind of match that knows one tenant only."""

from alembic import op

revision = "mem_008"
down_revision = "mem_007"
branch_labels = None
depends_on = None

# As long as a name may be: what folding makes longer than that would not fit into an index.
_LONGEST = 512
# How many that contain a name are looked at before the first of them are answered.
_REACH = 500
_LIVE = """e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (kind is null or e.entity_type = kind)"""
# What is asked is worked out once, and the rows are put in order only once the index has found them: with an order to
# keep, the planner would rather read all names in that order.
_FINDING = """
    create function entities_{how}(asked text, kind text, most bigint)
    returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
    language sql stable security definer rows 10 set search_path = public, pg_catalog {settings} as $$
        with q as materialized (
            select whole.name{keys}
              from (select folded(asked) as name offset 0) whole
        )
        select found.id, found.canonical_name, found.entity_type, found.aliases, {as_written}
          from q, lateral ({found}) found
         limit most
    $$
"""
_KEY = ", prefixed(current_tenant(), array[whole.name]) as key"
# Its parts of three characters; a shorter one is a part itself.
_PIECES = """, prefixed(current_tenant(), array(
                       select substr(whole.name, place, 3)
                         from generate_series(1, greatest(char_length(whole.name) - 2, 1)) as place
                   )) as pieces"""
_CALLED = """
            select n.*
              from (
                   select e.*
                     from entities e
                    where {live}
                      and split_part(e.names, chr(31), 1) collate "C" = q.name
                    limit {reach}
              ) n
             order by n.canonical_name, n.id
"""
_NICKNAMED = """
            select n.*
              from (
                   select e.*
                     from entities e
                    where {live}
                      and prefixed(e.tenant_id, string_to_array(e.names, chr(31))) && q.key
                      and split_part(e.names, chr(31), 1) <> q.name
                    limit {reach}
              ) n
             order by n.canonical_name, n.id
"""
# Those that begin with it come first, in their order; the others are looked for only where those are too few.
_CONTAINING = """
            (select e.*
               from entities e
              where {live}
                      and split_part(e.names, chr(31), 1) collate "C" > q.name
                      and split_part(e.names, chr(31), 1) collate "C" < q.name || chr(1114111)
              order by split_part(e.names, chr(31), 1) collate "C"
              limit most)
            union all
            (select n.*
               from (
                   select e.*
                     from entities e
                    where {live}
                      and pieces(e.tenant_id, e.names) @> q.pieces
                      and strpos(e.names, q.name) > 0
                      and not starts_with(e.names, q.name)
                    limit {reach}
               ) n
              order by n.names collate "C", n.id)
"""
# The index knows the aliases of an entity as one line; whether one of them is like the name is looked at after.
_ALIKE = """
            select n.*
              from (
                   select e.*, similarity(split_part(e.names, chr(31), 1), q.name) as likeness
                     from entities e
                    where {live}
                      and split_part(e.names, chr(31), 1) % q.name
                   union all
                   select e.*, (
                       select max(similarity(name, q.name)) from unnest(string_to_array(e.names, chr(31))) as name
                   )
                     from entities e
                    where {live}
                      and substr(e.names, strpos(e.names || chr(31), chr(31)) + 1) %> q.name
                      and not split_part(e.names, chr(31), 1) % q.name
              ) n
             where n.likeness >= 0.3
             order by n.likeness desc, n.canonical_name, n.id
             limit most
"""
_INDEXED = "where not (metadata ? 'merged_into')"
# A search reads what is not sorted in yet from end to end: there is never much of it.
_SOON = "with (gin_pending_list_limit = 128)"
_NOBODY = "select e.* from entities e where false"
_ARGUMENTS = "(text, text, bigint)"


def upgrade() -> None:
    _folding(unaccent=_present("unaccent"))
    op.execute("""
        alter table entities add column names text not null
        generated always as (folded_names(canonical_name, aliases)) stored
    """)
    op.execute("""
        comment on column entities.names is
        'The canonical name and then the aliases as they are compared, with chr(31) between them.'
    """)
    op.execute(f"""
        create index entities_called on entities (tenant_id, split_part(names, chr(31), 1) collate "C") {_INDEXED}
    """)
    op.execute(f"""
        create index entities_names on entities
        using gin (prefixed(tenant_id, string_to_array(names, chr(31)))) {_SOON} {_INDEXED}
    """)
    op.execute(f"""
        create index entities_pieces on entities using gin (pieces(tenant_id, names)) {_SOON} {_INDEXED}
    """)
    _find("called", _CALLED, "lower(found.canonical_name) = lower(asked)", "Who has this name.")
    _find(
        "nicknamed",
        _NICKNAMED,
        "exists (select from unnest(found.aliases) as alias where lower(alias) = lower(asked))",
        "Who has this alias.",
        keys=_KEY,
    )
    _find("containing", _CONTAINING, "true", "Whose name or alias begins with this or has it inside.", keys=_PIECES)
    _alike()


def downgrade() -> None:
    for how in ("alike", "containing", "nicknamed", "called"):
        op.execute(f"drop function entities_{how}{_ARGUMENTS}")
    op.execute("drop index if exists entities_alike")
    for index in ("entities_pieces", "entities_names", "entities_called"):
        op.execute(f"drop index {index}")
    op.execute("alter table entities drop column names")
    op.execute("drop function pieces(text, text)")
    op.execute("drop function folded_names(text, text[])")
    op.execute("drop function folded(text)")


def _present(extension: str) -> bool:
    """Whether the extension can be used: it is there, and where everybody's functions are."""
    here = "select extname from pg_extension where extnamespace = 'public'::regnamespace"
    return extension in op.get_bind().exec_driver_sql(here).scalars()


def _folding(*, unaccent: bool) -> None:
    composed = "normalize(name, nfkc)"
    bare = f"public.unaccent('public.unaccent', {composed})" if unaccent else composed
    # A sign that stands for a whole phrase can make a short name longer than an index takes: it stays a sign.
    fitting = f"case when char_length({composed}) > {_LONGEST} then name else {bare} end"
    # unaccent() is called stable because its rules could be changed. Of some signs it leaves nothing; a name that
    # is made of nothing else is compared as it is.
    op.execute(f"""
        create function folded(name text) returns text
        language sql immutable strict parallel safe
        return left(replace(coalesce(nullif(btrim(lower({fitting})), ''), lower(name)), chr(31), ' '), {_LONGEST})
    """)
    op.execute("""
        create function folded_names(canonical_name text, aliases text[]) returns text
        language sql immutable parallel safe as $$
            select public.folded(canonical_name) || coalesce((
                select string_agg(chr(31) || public.folded(alias), '' order by place)
                  from unnest(aliases) with ordinality as a (alias, place)
            ), '')
        $$
    """)
    op.execute("""
        create function pieces(tenant text, names text) returns text[]
        language sql immutable parallel safe as $$
            select array_agg(tenant || chr(31) || substr(names, place / 3, 1 + place % 3))
              from generate_series(3, 3 * char_length(names) + 2) as place
        $$
    """)
    for function, sentence in (
        ("folded(text)", "A name as it is compared: without case, width and, where unaccent is there, accents."),
        ("folded_names(text, text[])", "All names of an entity, as they are compared."),
        ("pieces(text, text)", "The parts of names of one to three characters, with their tenant in front of each."),
    ):
        op.execute(f"comment on function {function} is '{sentence}'")


def _alike() -> None:
    says = "Whose name or alias is spelled much like this; nobody where pg_trgm is not there."
    if not _present("pg_trgm"):
        _find("alike", _NOBODY, "false", says)
        return
    # Its settings are known only once it is loaded.
    op.execute("select similarity('', '')")
    op.execute(f"""
        create index entities_alike on entities using gin (
            split_part(names, chr(31), 1) gin_trgm_ops,
            substr(names, strpos(names || chr(31), chr(31)) + 1) gin_trgm_ops
        ) {_SOON} {_INDEXED}
    """)
    thresholds = "set pg_trgm.similarity_threshold = 0.3 set pg_trgm.word_similarity_threshold = 0.3"
    _find("alike", _ALIKE, "false", says, settings=thresholds)


def _find(how: str, found: str, as_written: str, says: str, *, keys: str = "", settings: str = "") -> None:
    rows = found.format(live=_LIVE, reach=_REACH)
    op.execute(_FINDING.format(how=how, found=rows, as_written=as_written, keys=keys, settings=settings))
    op.execute(f"comment on function entities_{how}{_ARGUMENTS} is '{says}'")
