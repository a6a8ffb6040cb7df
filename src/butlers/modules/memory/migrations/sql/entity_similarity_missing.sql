-- Names that are spelled alike, on a server without the extension pg_trgm: none are found.

create function find_entities_by_similarity(asked text, wanted_type text, max_rows bigint)
returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
language sql stable security definer rows 10 set search_path = public, pg_catalog as $$
    select e.id, e.canonical_name, e.entity_type, e.aliases, false from entities e where false
$$;
comment on function find_entities_by_similarity(text, text, bigint) is
    'No rows: this server has no pg_trgm.';
