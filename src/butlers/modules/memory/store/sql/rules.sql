-- name: insert(tenant_id, content, searchable, embedding, embedding_version_id, scope, confidence, permanence, decay_rate, source_butler, source_episode_id, tags, metadata)$
-- A new candidate, believed half and from now on.
insert into rules (
    tenant_id, content, search_vector, embedding, embedding_version_id, scope, confidence, permanence, decay_rate,
    source_butler, source_episode_id, tags, metadata
)
values (
    :tenant_id, :content, to_tsvector('english', :searchable), :embedding, :embedding_version_id, :scope,
    :confidence, :permanence, :decay_rate, :source_butler, :source_episode_id, :tags, :metadata
)
returning id;

-- name: confirm(tenant_id, id, supported, whole)^
-- Starts the decay of a live rule anew and ends its fading. What was only distilled counts as stored once something else
-- supports it.
update rules
   set last_confirmed_at = now(),
       confidence = case
           when :supported and metadata ->> 'provenance' = 'distilled' then greatest(confidence, :whole) else confidence
       end,
       metadata = metadata - 'status' || case
           when :supported and metadata ->> 'provenance' = 'distilled' then '{"provenance": "supported"}'::jsonb
           else '{}'
       end
 where tenant_id = :tenant_id
   and id = :id
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id, confidence, last_confirmed_at;

-- name: forget(tenant_id, id)$
-- Takes a live rule out of every search.
update rules
   set metadata = metadata || '{"forgotten": true}'
 where tenant_id = :tenant_id
   and id = :id
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id;

-- name: restore(tenant_id, id)$
-- Brings a forgotten rule back, believed from now on.
update rules
   set metadata = metadata - 'forgotten' - 'status',
       last_confirmed_at = now()
 where tenant_id = :tenant_id
   and id = :id
   and coalesce((metadata -> 'forgotten')::boolean, false)
returning id;

-- name: nearest(tenant_id, version, embedding, scopes, most)
-- The live rules nearest to a vector.
select id, content, coalesce((metadata -> 'needs_inversion')::boolean, false) as awaits_inversion
  from rules
 where tenant_id = :tenant_id
   and embedding_version_id = :version
   and scope = any (:scopes)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
 order by embedding <=> :embedding, id
 limit :most;

-- name: warnings(tenant_id, scopes)
-- The rules that did harm, with what they said before.
select id, content, metadata ->> 'original_content' as original
  from rules
 where tenant_id = :tenant_id
   and scope = any (:scopes)
   and maturity = 'anti_pattern'
   and metadata ? 'original_content';

-- name: unwanted(tenant_id, scopes, since)
-- The rules that somebody wanted forgotten since then; one that only faded away may come back.
select r.id, r.content
  from memory_events e
  join rules r on r.tenant_id = :tenant_id and r.id = e.entity_id
 where e.tenant_id = :tenant_id
   and e.event_type = 'rule_forgotten'
   and e.occurred_at >= :since
   and e.payload ->> 'by' is distinct from 'decay'
   and r.scope = any (:scopes)
   and coalesce((r.metadata -> 'forgotten')::boolean, false);

-- name: live_among(tenant_id, ids, scopes)
-- The live rules among these ids.
select id
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids)
   and scope = any (:scopes)
   and not coalesce((metadata -> 'forgotten')::boolean, false);

-- name: track_record(tenant_id, id)^
-- What is known of a rule's use, held until the mark is written: a hundred marks at once count a hundred.
select maturity, applied_count, success_count, harmful_count, effectiveness_score, metadata, now() - created_at as age
  from rules
 where tenant_id = :tenant_id
   and id = :id
   for update;

-- name: mark(tenant_id, id, maturity, applied_count, success_count, harmful_count, effectiveness_score, metadata)!
-- What is known of a rule's use after one more.
update rules
   set maturity = :maturity,
       applied_count = :applied_count,
       success_count = :success_count,
       harmful_count = :harmful_count,
       effectiveness_score = :effectiveness_score,
       metadata = :metadata,
       last_applied_at = now(),
       last_evaluated_at = now()
 where tenant_id = :tenant_id
   and id = :id;

-- name: record_application(tenant_id, rule_id, outcome, actor, session_id, request_id, context)!
-- One use of a rule and how it went.
insert into rule_applications (tenant_id, rule_id, outcome, actor, session_id, request_id, context)
values (:tenant_id, :rule_id, :outcome, :actor, :session_id, :request_id, :context);

-- name: candidates_exact(tenant_id, version, embedding, scopes, least_confidence, depth, reach, question, alone, firsts, seconds, reserve, most)
-- The nearest live rules, by comparing all of them, and the ones with the right words.
with compared as materialized (
    select id, created_at, (embedding <=> :embedding) + 0 as distance
      from rules
     where tenant_id = :tenant_id
       and embedding_version_id = :version
       and (:scopes::text[] is null or scope = any (:scopes))
       and :embedding::vector is not null
     order by distance, created_at desc, id
     limit :reach
), near as (
    select c.id, c.created_at, c.distance, b.maturity, b.awaits_inversion, b.idle_days, b.confidence,
           row_number() over (order by c.distance, c.created_at desc, c.id) as place
      from compared c
     cross join lateral (
         select f.maturity,
                coalesce((f.metadata -> 'needs_inversion')::boolean, false) as awaits_inversion,
                extract(epoch from now() - f.last_referenced_at)::double precision / 86400 as idle_days,
                effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence
           from rules f
          where f.tenant_id = :tenant_id
            and f.id = c.id
            and not coalesce((f.metadata -> 'forgotten')::boolean, false)
            and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) >= :least_confidence
         offset 0
     ) b
     order by c.distance, c.created_at desc, c.id
     limit :depth
), words as (
    select w.*
      from rule_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, maturity, awaits_inversion, idle_days, confidence, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.maturity, words.maturity) as maturity, coalesce(near.awaits_inversion, words.awaits_inversion) as awaits_inversion,
       coalesce(near.idle_days, words.idle_days) as idle_days, coalesce(near.confidence, words.confidence) as confidence,
       reached.compared
  from (select count(*) as compared from compared) reached
  left join (near full join words on words.id = near.id) on true;

-- name: candidates_indexed(tenant_id, version, embedding, scopes, least_confidence, depth, question, alone, firsts, seconds, reserve, most)
-- The nearest live rules, by the vector index, and the ones with the right words.
with near as (
    select n.*, row_number() over (order by n.distance, n.created_at desc, n.id) as place
      from (
          select f.id, f.created_at, f.embedding <=> :embedding as distance,
                 f.maturity,
                 coalesce((f.metadata -> 'needs_inversion')::boolean, false) as awaits_inversion,
                 extract(epoch from now() - f.last_referenced_at)::double precision / 86400 as idle_days,
                 effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence
            from rules f
           where f.tenant_id = :tenant_id
             and f.embedding_version_id = :version
             and (:scopes::text[] is null or f.scope = any (:scopes))
             and :embedding::vector is not null
             and not coalesce((f.metadata -> 'forgotten')::boolean, false)
             and effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) >= :least_confidence
           order by f.embedding <=> :embedding
           limit :depth
      ) n
), words as (
    select w.*
      from rule_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, maturity, awaits_inversion, idle_days, confidence, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.maturity, words.maturity) as maturity, coalesce(near.awaits_inversion, words.awaits_inversion) as awaits_inversion,
       coalesce(near.idle_days, words.idle_days) as idle_days, coalesce(near.confidence, words.confidence) as confidence
  from near
  full join words on words.id = near.id;

-- name: size(tenant_id, scopes, most)$
-- How many live rules are in scope, counted no further than `most`.
select count(*)
  from (
      select
        from rules
       where tenant_id = :tenant_id
         and not coalesce((metadata -> 'forgotten')::boolean, false)
         and (:scopes::text[] is null or scope = any (:scopes))
       limit :most
  ) counted;
