-- name: lock_live(tenant_id, id)^
-- Locks an entity against a merge until the transaction ends.
select id, metadata ->> 'merged_into' as merged_into
  from entities
 where tenant_id = :tenant_id
   and id = :id
   for key share;

-- name: lock_live_all(tenant_id, ids)
-- Locks entities against a merge until the transaction ends, in id order.
select id, metadata ->> 'merged_into' as merged_into
  from entities
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[])
 order by id
   for key share;

-- name: successor(tenant_id, id)$
-- The entity that a merged one ended up in, after any number of merges.
with recursive merged as (
    select id, metadata ->> 'merged_into' as into_id, 0 as step
      from entities
     where tenant_id = :tenant_id and id = :id
    union all
    select e.id, e.metadata ->> 'merged_into', m.step + 1
      from merged m
      join entities e on e.tenant_id = :tenant_id and e.id = case
               -- An imported entity may have any text there.
               when m.into_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then m.into_id::uuid
           end
     where m.step < 1000
)
select coalesce(into_id, id::text) from merged order by step desc limit 1;

-- name: insert(tenant_id, canonical_name, entity_type, aliases, metadata)$
-- Stores an entity.
insert into entities (tenant_id, canonical_name, entity_type, aliases, metadata)
values (:tenant_id, :canonical_name, :entity_type, :aliases, :metadata)
returning id;

-- name: holder_of_name(tenant_id, canonical_name, entity_type)$
-- The entity that has a name, a live one first.
select id
  from entities
 where tenant_id = :tenant_id
   and entity_type = :entity_type
   and (canonical_name = :canonical_name
     or (lower(canonical_name) = lower(:canonical_name) and not (metadata ? 'merged_into')))
 order by metadata ? 'merged_into'
 limit 1;

-- name: get(tenant_id, id)^
-- A whole entity, merged or not, with the number of its live facts.
select e.id, e.tenant_id, e.canonical_name, e.entity_type, e.aliases, e.metadata, e.created_at, e.updated_at,
       (select count(*)
          from facts f
         where f.tenant_id = :tenant_id
           and f.entity_id = e.id
           and f.validity = 'active') as live_facts
  from entities e
 where e.tenant_id = :tenant_id
   and e.id = :id;

-- name: list_by_name(tenant_id, entity_type, merged, max_rows)
-- Entities by name, with the number of their live facts.
select e.id, e.canonical_name, e.entity_type, e.aliases, e.metadata ->> 'merged_into' as merged_into,
       e.metadata ->> 'former_name' as former_name, e.updated_at,
       (select count(*)
          from facts f
         where f.tenant_id = :tenant_id
           and f.entity_id = e.id
           and f.validity = 'active') as live_facts
  from entities e
 where e.tenant_id = :tenant_id
   and (:entity_type::text is null or e.entity_type = :entity_type)
   and (e.metadata ? 'merged_into') = :merged
 order by e.canonical_name, e.id
 limit :max_rows;

-- name: lock(tenant_id, ids)
-- Locks entities until the transaction ends, in id order.
select id, canonical_name, entity_type, aliases, metadata
  from entities
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[])
 order by id
   for update;

-- name: update(tenant_id, id, canonical_name, aliases, metadata)^
-- Changes an entity; a null leaves a value as it is, metadata is added.
update entities
   set canonical_name = coalesce(:canonical_name, canonical_name),
       aliases = coalesce(:aliases::text[], aliases),
       metadata = metadata || coalesce(:metadata::jsonb, '{}'),
       updated_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning canonical_name, entity_type, aliases, metadata, updated_at;

-- name: write_merge_target(tenant_id, id, aliases, metadata)!
-- Writes the aliases and metadata that an entity has after a merge.
update entities
   set aliases = :aliases,
       metadata = :metadata,
       updated_at = now()
 where tenant_id = :tenant_id
   and id = :id;

-- name: write_merge_source(tenant_id, id, metadata)!
-- Marks an entity as merged away; it gives up its name and takes its id for one.
update entities
   set canonical_name = id::text,
       metadata = :metadata,
       updated_at = now()
 where tenant_id = :tenant_id
   and id = :id;

-- name: find_candidates(name, entity_type, fuzzy, max_rows)
-- Live entities that a name may mean, by each way a name can match.
select 'exact' as match, c.* from find_entities_by_name(:name, :entity_type, :max_rows) c
union all
select 'alias', c.* from find_entities_by_alias(:name, :entity_type, :max_rows) c
union all
select 'prefix', c.* from find_entities_by_part(:name, :entity_type, :max_rows) c
union all
select 'fuzzy', c.* from find_entities_by_similarity(:name, :entity_type, :max_rows) c where :fuzzy::boolean;

-- name: keyword_overlaps(tenant_id, ids, hints, name, max_rows)
-- The number of keywords that the hints share with the facts of each entity. Names do not count: neither the one
-- that is looked up nor the subjects.
with terms as materialized (
    select tsvector_to_array(ts_delete(
               to_tsvector('english', :hints), tsvector_to_array(to_tsvector('english', :name))
           )) as words
)
select c.id, counted.shared, cardinality(terms.words) + counted.known - counted.shared as total
  from terms
 cross join unnest(:ids::uuid[]) as c (id)
 cross join lateral (
     select count(*) filter (where known.word = any (terms.words))::integer as shared, count(*)::integer as known
       from (
           select distinct word
             from (
                 select subject, search_vector
                   from facts
                  where tenant_id = :tenant_id
                    and entity_id = c.id
                    and validity = 'active'
                  order by created_at desc, id
                  limit :max_rows
             ) f
            cross join unnest(tsvector_to_array(ts_delete(
                f.search_vector, tsvector_to_array(to_tsvector('english', f.subject))
            ))) as word
       ) known
 ) counted
 where cardinality(terms.words) > 0;

-- name: lock_facts(tenant_id, ids)
-- Locks every fact of these entities, in id order.
select id, entity_id, scope, predicate, confidence, validity, content
  from facts
 where tenant_id = :tenant_id
   and entity_id = any (:ids::uuid[])
 order by id
   for update;

-- name: live_facts(tenant_id, ids)
-- The live facts of these entities.
select id, entity_id, scope, predicate, confidence, validity, content
  from facts
 where tenant_id = :tenant_id
   and entity_id = any (:ids::uuid[])
   and validity = 'active'
 order by id;

-- name: supersede_facts(tenant_id, superseded)!
-- Supersedes the losing facts of conflicts.
update facts
   set validity = 'superseded'
 where tenant_id = :tenant_id
   and id = any (:superseded::uuid[])
   and validity = 'active';

-- name: write_supersedes(tenant_id, kept, superseded)!
-- Names the fact that a fact superseded, where it had superseded none before.
update facts
   set supersedes_id = s.superseded
  from unnest(:kept::uuid[], :superseded::uuid[]) as s (kept, superseded)
 where facts.tenant_id = :tenant_id
   and facts.id = s.kept
   and facts.supersedes_id is null;

-- name: repoint_facts(tenant_id, source_id, target_id)
-- Moves the facts of one entity to another, in any state.
update facts
   set entity_id = :target_id
 where tenant_id = :tenant_id
   and entity_id = :source_id
returning id;
