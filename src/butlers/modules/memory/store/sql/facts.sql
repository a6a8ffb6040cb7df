-- name: lock_key(tenant_id, key)!
-- Lets one writer at a time have a key. The next statement sees what the one before it wrote.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || :key, 3));

-- name: lock_keys(tenant_id, keys)!
-- The same for several keys, in the order they come.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || k.key, 3))
  from unnest(:keys::text[]) with ordinality as k (key, place)
 order by k.place;

-- name: targets(tenant_id, ids, scopes)
-- The live facts among these ids.
select id, scope, subject, predicate, entity_id, permanence, importance, tags
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids)
   and scope = any (:scopes)
   and validity = 'active';

-- name: saying(tenant_id, scopes, subject, predicate, content)$
-- A live fact that says the same about the same.
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

-- name: is_unwanted(tenant_id, scopes, subject, predicate, content, since)$
-- Whether a fact that says the same about the same was retracted since then.
select exists (
    select
      from facts f
      join memory_events e
        on e.tenant_id = :tenant_id and e.entity_type = 'fact' and e.entity_id = f.id and e.event_type = 'fact_forgotten'
     where f.tenant_id = :tenant_id
       and f.subject = :subject
       and f.predicate = :predicate
       and f.scope = any (:scopes)
       and f.validity = 'retracted'
       and f.content = :content
       and e.occurred_at >= :since
);

-- name: live_by_subject(tenant_id, scope, subject, predicate)^
-- The live fact under a subject's key.
select id, content, permanence, importance, tags, metadata
  from facts
 where tenant_id = :tenant_id
   and scope = :scope
   and subject = :subject
   and predicate = :predicate
   and entity_id is null
   and validity = 'active'
   for update;

-- name: live_by_entity(tenant_id, scope, entity_id, predicate)^
-- The live fact under an entity's key.
select id, content, permanence, importance, tags, metadata
  from facts
 where tenant_id = :tenant_id
   and scope = :scope
   and entity_id = :entity_id
   and predicate = :predicate
   and validity = 'active'
   for update;

-- name: supersede(tenant_id, id)$
-- Takes a live fact out of every search.
update facts
   set validity = 'superseded'
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id;

-- name: insert(tenant_id, subject, predicate, content, searchable, embedding, embedding_version_id, importance, confidence, permanence, decay_rate, source_butler, source_episode_id, supersedes_id, entity_id, scope, tags, metadata)$
-- A new live fact, believed from now on.
insert into facts (
    tenant_id, subject, predicate, content, search_vector, embedding, embedding_version_id, importance,
    confidence, permanence, decay_rate, source_butler, source_episode_id, supersedes_id, entity_id, scope, tags, metadata
)
values (
    :tenant_id, :subject, :predicate, :content, to_tsvector('english', :searchable), :embedding,
    :embedding_version_id, :importance, :confidence, :permanence, :decay_rate, :source_butler, :source_episode_id,
    :supersedes_id, :entity_id, :scope, :tags, :metadata
)
returning id;

-- name: confirm(tenant_id, id, supported, whole)^
-- Starts the decay of a live fact anew and ends its fading. What was only distilled is believed wholly once something
-- else supports it.
update facts
   set last_confirmed_at = now(),
       confidence = case when :supported and metadata ->> 'provenance' = 'distilled' then :whole else confidence end,
       metadata = metadata - 'status' || case
           when :supported and metadata ->> 'provenance' = 'distilled' then '{"provenance": "supported"}'::jsonb
           else '{}'
       end
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id, confidence, last_confirmed_at;

-- name: forget(tenant_id, id)$
-- Retracts a live fact.
update facts
   set validity = 'retracted'
 where tenant_id = :tenant_id
   and id = :id
   and validity = 'active'
returning id;

-- name: restore(tenant_id, id)$
-- Brings back a fact that was retracted or let go, believed from now on.
update facts
   set validity = 'active',
       last_confirmed_at = now(),
       metadata = metadata - 'status'
 where tenant_id = :tenant_id
   and id = :id
   and validity in ('retracted', 'expired')
returning id;

-- name: keys_of(tenant_id, ids)
-- The keys of facts, whatever their state.
select scope, subject, predicate, entity_id
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids);

-- name: candidates_exact(tenant_id, version, embedding, scopes, least_confidence, depth, reach, question, alone, firsts, seconds, reserve, most)
-- The nearest live facts, by comparing all of them, and the ones with the right words.
with compared as materialized (
    select id, created_at, (embedding <=> :embedding) + 0 as distance
      from facts
     where tenant_id = :tenant_id
       and embedding_version_id = :version
       and validity = 'active'
       and (:scopes::text[] is null or scope = any (:scopes))
       and :embedding::vector is not null
     order by distance, created_at desc, id
     limit :reach
), near as (
    select c.id, c.created_at, c.distance, b.importance, b.idle_days, b.confidence,
           row_number() over (order by c.distance, c.created_at desc, c.id) as place
      from compared c
     cross join lateral (
         select f.importance,
                extract(epoch from now() - f.last_referenced_at)::double precision / 86400 as idle_days,
                effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence
           from facts f
          where f.tenant_id = :tenant_id
            and f.id = c.id
            and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) >= :least_confidence
         offset 0
     ) b
     order by c.distance, c.created_at desc, c.id
     limit :depth
), words as (
    select w.*
      from fact_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, importance, idle_days, confidence, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.importance, words.importance) as importance, coalesce(near.idle_days, words.idle_days) as idle_days,
       coalesce(near.confidence, words.confidence) as confidence,
       reached.compared
  from (select count(*) as compared from compared) reached
  left join (near full join words on words.id = near.id) on true;

-- name: candidates_indexed(tenant_id, version, embedding, scopes, least_confidence, depth, question, alone, firsts, seconds, reserve, most)
-- The nearest live facts, by the vector index, and the ones with the right words.
with near as (
    select n.*, row_number() over (order by n.distance, n.created_at desc, n.id) as place
      from (
          select f.id, f.created_at, f.embedding <=> :embedding as distance,
                 f.importance,
                 extract(epoch from now() - f.last_referenced_at)::double precision / 86400 as idle_days,
                 effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence
            from facts f
           where f.tenant_id = :tenant_id
             and f.embedding_version_id = :version
             and f.validity = 'active'
             and (:scopes::text[] is null or f.scope = any (:scopes))
             and :embedding::vector is not null
             and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) >= :least_confidence
           order by f.embedding <=> :embedding
           limit :depth
      ) n
), words as (
    select w.*
      from fact_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, importance, idle_days, confidence, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.importance, words.importance) as importance, coalesce(near.idle_days, words.idle_days) as idle_days,
       coalesce(near.confidence, words.confidence) as confidence
  from near
  full join words on words.id = near.id;

-- name: size(tenant_id, scopes, most)$
-- How many live facts are in scope, counted no further than `most`.
select count(*)
  from (
      select
        from facts
       where tenant_id = :tenant_id
         and validity = 'active'
         and (:scopes::text[] is null or scope = any (:scopes))
       limit :most
  ) counted;

-- name: superseded_chain(tenant_id, id, most)
-- What a fact replaced, and what that replaced, latest first. A fact that was kept in a merge of entities replaced
-- another besides the one before it, which its links tell.
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
     where c.step < :most
)
select id, content, validity, created_at from chain where step > 0 order by step, created_at desc, id limit :most;

-- name: superseding_chain(tenant_id, id, most)
-- What replaced a fact, and what replaced that, earliest first.
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
     where c.step < :most
)
select id, content, validity, created_at from chain where step > 0 order by step, created_at, id limit :most;
