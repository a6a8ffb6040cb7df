-- Entities: the people, organizations and places that facts are about.

comment on function normalized_name(text) is
    'A name as it is compared: without case, width and, where unaccent is installed, accents.';

create function normalized_names(canonical_name text, aliases text[]) returns text
language sql immutable parallel safe as $$
    select public.normalized_name(canonical_name) || coalesce((
        select string_agg(chr(31) || public.normalized_name(alias), '' order by place)
          from unnest(aliases) with ordinality as a (alias, place)
    ), '')
$$;
comment on function normalized_names(text, text[]) is
    'All names of an entity as they are compared, with chr(31) between them.';

create function name_ngrams(tenant text, names text) returns text[]
language sql immutable parallel safe as $$
    select array_agg(tenant || chr(31) || substr(names, place / 3, 1 + place % 3))
      from generate_series(3, 3 * char_length(names) + 2) as place
$$;
comment on function name_ngrams(text, text) is
    'The parts of names of one to three characters, with their tenant in front of each.';

create table entities (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    canonical_name varchar not null,
    entity_type varchar not null,
    aliases text[] not null default '{}',
    names text not null generated always as (normalized_names(canonical_name, aliases)) stored,
    metadata jsonb not null default '{}',
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    constraint entities_pkey primary key (tenant_id, id),
    constraint entities_name_key unique (tenant_id, canonical_name, entity_type),
    constraint entities_tenant_named check (tenant_id <> ''),
    constraint entities_canonical_name_not_blank check (canonical_name ~ '\S'),
    constraint entities_entity_type_known check (entity_type in ('person', 'organization', 'place', 'other')),
    constraint entities_metadata_object check (jsonb_typeof(metadata) = 'object')
);
select enable_tenant_isolation('entities');

create unique index entities_live_name_key on entities (tenant_id, lower(canonical_name), entity_type)
    where not (metadata ? 'merged_into');
create index entities_by_name on entities (tenant_id, canonical_name);
create index entities_aliases on entities using gin (aliases);
create index entities_metadata on entities using gin (metadata);
create index entities_by_normalized_name on entities (tenant_id, split_part(names, chr(31), 1) collate "C")
    where not (metadata ? 'merged_into');
-- A small pending list: a search reads the whole list from end to end.
create index entities_by_any_name on entities using gin (tenant_terms(tenant_id, string_to_array(names, chr(31))))
    with (gin_pending_list_limit = 128) where not (metadata ? 'merged_into');
create index entities_by_ngram on entities using gin (name_ngrams(tenant_id, names))
    with (gin_pending_list_limit = 128) where not (metadata ? 'merged_into');

comment on table entities is 'The people, organizations and places that facts are about.';
comment on column entities.metadata is 'merged_into: the entity that took this one over.';
comment on column entities.names is
    'The canonical name and then the aliases as they are compared, with chr(31) between them.';

-- Facts about an entity: the entity keys them instead of the subject.

alter table facts add column entity_id uuid;
alter table facts add constraint facts_entity_fkey
    foreign key (tenant_id, entity_id) references entities (tenant_id, id) on delete restrict;

create index facts_by_entity on facts (tenant_id, entity_id) where entity_id is not null;
create unique index facts_active_subject_key on facts (tenant_id, scope, subject, predicate)
    where entity_id is null and validity = 'active';
create unique index facts_active_entity_key on facts (tenant_id, entity_id, scope, predicate)
    where entity_id is not null and validity = 'active';

comment on column facts.entity_id is 'The entity it is about; then the entity is its key and not the subject.';

-- Name resolution: one function for each way a name can match, each through an index of the caller's tenant. The
-- normalised name is computed once, and rows are sorted after the index has found them: with an order to keep, the
-- planner would rather read all names in that order.

create function find_entities_by_name(asked text, wanted_type text, max_rows bigint)
returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
language sql stable security definer rows 10 set search_path = public, pg_catalog as $$
    with query as materialized (
        select whole.name from (select normalized_name(asked) as name offset 0) whole
    )
    select found.id, found.canonical_name, found.entity_type, found.aliases,
           lower(found.canonical_name) = lower(asked)
      from query, lateral (
            select n.*
              from (
                   select e.*
                     from entities e
                    where e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (wanted_type is null or e.entity_type = wanted_type)
                      and split_part(e.names, chr(31), 1) collate "C" = query.name
                    limit 500
              ) n
             order by n.canonical_name, n.id
      ) found
     limit max_rows
$$;
comment on function find_entities_by_name(text, text, bigint) is 'Live entities with this canonical name.';

create function find_entities_by_alias(asked text, wanted_type text, max_rows bigint)
returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
language sql stable security definer rows 10 set search_path = public, pg_catalog as $$
    with query as materialized (
        select whole.name, tenant_terms(current_tenant(), array[whole.name]) as terms
          from (select normalized_name(asked) as name offset 0) whole
    )
    select found.id, found.canonical_name, found.entity_type, found.aliases,
           exists (select from unnest(found.aliases) as alias where lower(alias) = lower(asked))
      from query, lateral (
            select n.*
              from (
                   select e.*
                     from entities e
                    where e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (wanted_type is null or e.entity_type = wanted_type)
                      and tenant_terms(e.tenant_id, string_to_array(e.names, chr(31))) && query.terms
                      and split_part(e.names, chr(31), 1) <> query.name
                    limit 500
              ) n
             order by n.canonical_name, n.id
      ) found
     limit max_rows
$$;
comment on function find_entities_by_alias(text, text, bigint) is 'Live entities with this alias.';

-- Names that begin with the text come first, in their order. The others are looked up only where those are too few,
-- by the text's parts of three characters.
create function find_entities_by_part(asked text, wanted_type text, max_rows bigint)
returns table (id uuid, canonical_name varchar, entity_type varchar, aliases text[], as_written boolean)
language sql stable security definer rows 10 set search_path = public, pg_catalog as $$
    with query as materialized (
        select whole.name, tenant_terms(current_tenant(), array(
                   select substr(whole.name, place, 3)
                     from generate_series(1, greatest(char_length(whole.name) - 2, 1)) as place
               )) as ngrams
          from (select normalized_name(asked) as name offset 0) whole
    )
    select found.id, found.canonical_name, found.entity_type, found.aliases, true
      from query, lateral (
            (select e.*
               from entities e
              where e.tenant_id = (select current_tenant())
                and not (e.metadata ? 'merged_into')
                and (wanted_type is null or e.entity_type = wanted_type)
                and split_part(e.names, chr(31), 1) collate "C" > query.name
                and split_part(e.names, chr(31), 1) collate "C" < query.name || chr(1114111)
              order by split_part(e.names, chr(31), 1) collate "C"
              limit max_rows)
            union all
            (select n.*
               from (
                   select e.*
                     from entities e
                    where e.tenant_id = (select current_tenant())
                      and not (e.metadata ? 'merged_into')
                      and (wanted_type is null or e.entity_type = wanted_type)
                      and name_ngrams(e.tenant_id, e.names) @> query.ngrams
                      and strpos(e.names, query.name) > 0
                      and not starts_with(e.names, query.name)
                    limit 500
               ) n
              order by n.names collate "C", n.id)
      ) found
     limit max_rows
$$;
comment on function find_entities_by_part(text, text, bigint) is
    'Live entities with a name or alias that begins with this text or contains it.';
