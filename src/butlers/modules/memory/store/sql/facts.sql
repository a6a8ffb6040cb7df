-- name: lock_buckets(tenant_id, buckets)!
-- Lets one writer at a time have a bucket of keys; the next statement sees what the writer before it wrote. All writers
-- lock in the order of the buckets.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || b.bucket, 3))
  from unnest(:buckets::integer[]) with ordinality as b (bucket, place)
 order by b.place;

-- name: keys_of_facts(tenant_id, ids)
-- The keys of facts in any state.
select scope, subject, predicate, entity_id
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids);

-- name: update_targets(tenant_id, ids, scopes)
-- The live facts in scope among these ids.
select id, scope, subject, predicate, entity_id, permanence, importance, tags
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids)
   and scope = any (:scopes)
   and validity = 'active';

-- name: find_same_content(tenant_id, scopes, subject, predicate, content)$
-- A live fact in scope with the same subject, predicate and content.
select id
  from facts
 where tenant_id = :tenant_id
   and subject = :subject
   and predicate = :predicate
   and scope = any (:scopes)
   and validity = 'active'
   and content = :content
 order by created_at, id
 limit 1;

-- name: was_retracted_since(tenant_id, scopes, subject, predicate, content, since)$
-- Whether a fact with the same subject, predicate and content was retracted since a time.
select exists (
    select
      from facts f
      join memory_events e
        on e.tenant_id = :tenant_id and e.entity_type = 'fact' and e.entity_id = f.id
           and e.event_type in ('fact_forgotten', 'fact_created_undone', 'fact_restored_undone')
     where f.tenant_id = :tenant_id
       and f.subject = :subject
       and f.predicate = :predicate
       and f.scope = any (:scopes)
       and f.validity = 'retracted'
       and f.content = :content
       and e.occurred_at >= :since
);

-- name: lock_live_by_subject(tenant_id, scope, subject, predicate)^
-- Locks the live fact with a subject as its key.
select id, content, permanence, importance, tags, confidence
  from facts
 where tenant_id = :tenant_id
   and scope = :scope
   and subject = :subject
   and predicate = :predicate
   and entity_id is null
   and validity = 'active'
   for update;

-- name: lock_live_by_entity(tenant_id, scope, entity_id, predicate)^
-- Locks the live fact with an entity as its key.
select id, content, permanence, importance, tags, confidence
  from facts
 where tenant_id = :tenant_id
   and scope = :scope
   and entity_id = :entity_id
   and predicate = :predicate
   and validity = 'active'
   for update;

-- name: lock_live(tenant_id, id)^
-- Locks a live fact by its id.
select id, content, permanence, importance, tags, confidence
  from facts
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
   for update;

-- name: supersede(tenant_id, id)$
-- Supersedes a live fact: no search finds it any more.
update facts
   set validity = 'superseded'
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id;

-- name: insert_if_free(tenant_id, subject, predicate, content, searchable, embedding, embedding_version_id, importance, confidence, permanence, decay_rate, source_butler, source_episode_id, supersedes_id, entity_id, scope, tags, metadata, actor, request_id, payload)^
-- Stores a live fact, confirmed now, with its event, if its key is free; else locks the live fact that has the key and
-- returns it. Says whether other live facts are about its subject or entity.
with of_subject as materialized (
    select id, content, permanence, importance, tags, confidence
      from facts
     where tenant_id = :tenant_id
       and scope = :scope
       and subject = :subject
       and predicate = :predicate
       and entity_id is null
       and validity = 'active'
       and :entity_id::uuid is null
       for update
), of_entity as materialized (
    select id, content, permanence, importance, tags, confidence
      from facts
     where tenant_id = :tenant_id
       and scope = :scope
       and entity_id = :entity_id
       and predicate = :predicate
       and validity = 'active'
       for update
), existing as (
    select * from of_subject union all select * from of_entity
), inserted as (
    insert into facts (
        tenant_id, subject, predicate, content, search_vector, embedding, embedding_version_id, importance, confidence,
        permanence, decay_rate, source_butler, source_episode_id, supersedes_id, entity_id, scope, tags, metadata
    )
    select :tenant_id, :subject, :predicate, :content, to_tsvector('english', :searchable), :embedding::vector,
           :embedding_version_id::uuid, :importance::double precision, :confidence::double precision, :permanence,
           :decay_rate::double precision, :source_butler, :source_episode_id::uuid, :supersedes_id::uuid,
           :entity_id::uuid, :scope, :tags::jsonb, :metadata::jsonb
     where not exists (select from existing)
    returning id
), event as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'fact_created', 'fact', id, :actor, :request_id, :payload::jsonb from inserted
)
select inserted.id as inserted_id, existing.*,
       exists (select from facts f where f.tenant_id = :tenant_id and f.subject = :subject and f.validity = 'active')
       or exists (select from facts f where f.tenant_id = :tenant_id and f.entity_id = :entity_id and f.validity = 'active')
       as has_topic
  from (select) as one
  left join inserted on true
  left join existing on true;

-- name: confirm(tenant_id, ids, is_supported, full_confidence)
-- Restarts the decay of live facts and ends their fading. A distilled fact gets full confidence once something else
-- supports it.
update facts
   set last_confirmed_at = now(),
       confidence = case
           when :is_supported and metadata ->> 'provenance' = 'distilled' then :full_confidence
           else coalesce((metadata -> 'confidence_when_confirmed')::double precision, confidence)
       end,
       metadata = metadata - array['status', 'confidence_when_confirmed'] || case
           when :is_supported and metadata ->> 'provenance' = 'distilled' then '{"provenance": "supported"}'::jsonb
           else '{}'
       end
 where tenant_id = :tenant_id
   and id = any (:ids)
   and validity = 'active'
returning id, confidence, last_confirmed_at;

-- name: superseded_chain(tenant_id, id, max_rows)
-- The facts that a fact superseded, directly and indirectly, latest first. A fact kept in a merge of entities
-- superseded a second one, which only its links name.
with recursive chain as (
    select id, supersedes_id, content, validity, created_at, 0 as step
      from facts
     where tenant_id = :tenant_id and id = :id
    union all
    select f.id, f.supersedes_id, f.content, f.validity, f.created_at, c.step + 1
      from chain c
     cross join lateral (
         select c.supersedes_id as id
         union
         select target_id
           from memory_links
          where tenant_id = :tenant_id
            and source_type = 'fact' and source_id = c.id
            and target_type = 'fact' and relation = 'supersedes'
     ) before
      join facts f on f.tenant_id = :tenant_id and f.id = before.id
     where c.step < :max_rows
)
select id, content, validity, created_at from chain where step > 0 order by step, created_at desc, id limit :max_rows;

-- name: superseding_chain(tenant_id, id, max_rows)
-- The facts that superseded a fact, directly and indirectly, earliest first.
with recursive chain as (
    select id, content, validity, created_at, 0 as step
      from facts
     where tenant_id = :tenant_id and id = :id
    union all
    select f.id, f.content, f.validity, f.created_at, c.step + 1
      from chain c
     cross join lateral (
         select id from facts where tenant_id = :tenant_id and supersedes_id = c.id
         union
         select source_id
           from memory_links
          where tenant_id = :tenant_id
            and target_type = 'fact' and target_id = c.id
            and source_type = 'fact' and relation = 'supersedes'
     ) after
      join facts f on f.tenant_id = :tenant_id and f.id = after.id
     where c.step < :max_rows
)
select id, content, validity, created_at from chain where step > 0 order by step, created_at, id limit :max_rows;

-- name: edit(tenant_id, id, importance, permanence, decay_rate, tags)$
-- Changes a live fact in place; a null leaves a value as it is. A new decay rate counts from now and from what is left
-- of the confidence, so that today's confidence stays; the next confirmation brings back the full one.
update facts
   set importance = coalesce(:importance::double precision, importance),
       permanence = coalesce(:permanence, permanence),
       tags = coalesce(:tags::jsonb, tags),
       decay_rate = coalesce(:decay_rate::double precision, decay_rate),
       confidence = case
           when decay_rate <> :decay_rate then effective_confidence(confidence, decay_rate, last_confirmed_at, now()) else confidence
       end,
       last_confirmed_at = case when decay_rate <> :decay_rate then now() else last_confirmed_at end,
       metadata = case
           when decay_rate <> :decay_rate then jsonb_build_object('confidence_when_confirmed', confidence) || metadata else metadata
       end
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id;

-- name: move(tenant_id, id, entity_id)$
-- Moves a live fact to an entity, which becomes its key.
update facts
   set entity_id = :entity_id
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id;

-- name: get_for_correction(tenant_id, id)^
-- A fact in any state, as far as its correction keeps it.
select id, scope, subject, predicate, entity_id, permanence, importance, tags
  from facts
 where tenant_id = :tenant_id
   and id = :id;

-- name: key_holders(tenant_id, ids, entity_ids, leaving)
-- Live facts under the keys that these facts would have with these entities, apart from those that are to leave.
select f.id, holder.id as holder_id
  from unnest(:ids::uuid[], :entity_ids::uuid[]) as wanted (id, entity_id)
  join facts f on f.tenant_id = :tenant_id and f.id = wanted.id
  join facts holder
    on holder.tenant_id = :tenant_id
       and holder.scope = f.scope
       and holder.predicate = f.predicate
       and holder.validity = 'active'
       and (holder.entity_id = wanted.entity_id
         or (holder.entity_id is null and wanted.entity_id is null and holder.subject = f.subject))
 where holder.id <> f.id
   and holder.id <> all (:leaving::uuid[]);
