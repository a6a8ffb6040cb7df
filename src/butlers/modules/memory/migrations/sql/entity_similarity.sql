-- Names that are spelled alike, on a server with the extension pg_trgm.

-- Loads the library: its settings are unknown before that.
select similarity('', '');

create index entities_by_similarity on entities using gin (
    split_part(names, chr(31), 1) gin_trgm_ops,
    substr(names, strpos(names || chr(31), chr(31)) + 1) gin_trgm_ops
) with (gin_pending_list_limit = 128) where not (metadata ? 'merged_into');

-- The index holds the aliases of an entity as one text; each alias is compared after the index has found the row.
create function find_entities_by_similarity(asked text, wanted_type text, max_rows bigint)
returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
language sql stable security definer rows 10 set search_path = public, pg_catalog
set pg_trgm.similarity_threshold = 0.3 set pg_trgm.word_similarity_threshold = 0.3 as $$
    with query as materialized (
        select whole.name from (select normalized_name(asked) as name offset 0) whole
    )
    select found.id, found.canonical_name, found.entity_type, found.aliases, false
      from query, lateral (
            select n.*
              from (
                   select e.*, similarity(split_part(e.names, chr(31), 1), query.name) as likeness
                     from entities e
                    where e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (wanted_type is null or e.entity_type = wanted_type)
                      and split_part(e.names, chr(31), 1) % query.name
                   union all
                   select e.*, (
                       select max(similarity(name, query.name)) from unnest(string_to_array(e.names, chr(31))) as name
                   )
                     from entities e
                    where e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (wanted_type is null or e.entity_type = wanted_type)
                      and substr(e.names, strpos(e.names || chr(31), chr(31)) + 1) %> query.name
                      and not split_part(e.names, chr(31), 1) % query.name
              ) n
             where n.likeness >= 0.3
             order by n.likeness desc, n.canonical_name, n.id
             limit max_rows
      ) found
     limit max_rows
$$;
comment on function find_entities_by_similarity(text, text, bigint) is
    'Live entities with a name or alias that is spelled much like this text.';
