-- name: insert(tenant_id, content, searchable, embedding, embedding_version_id, scope, confidence, permanence, decay_rate, source_butler, source_episode_id, tags, metadata, actor, request_id, payload)^
-- Stores a candidate rule, confirmed now, with its event; says whether other live rules are in its scope or global.
with inserted as (
    insert into rules (
        tenant_id, content, search_vector, embedding, embedding_version_id, scope, confidence, permanence, decay_rate,
        source_butler, source_episode_id, tags, metadata
    )
    values (
        :tenant_id, :content, to_tsvector('english', :searchable), :embedding, :embedding_version_id, :scope,
        :confidence, :permanence, :decay_rate, :source_butler, :source_episode_id, :tags, :metadata
    )
    returning id
), event as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'rule_created', 'rule', id, :actor, :request_id, :payload::jsonb from inserted
)
select id, exists (
    select
      from rules r
     where r.tenant_id = :tenant_id
       and r.scope in ('global', :scope)
       and not coalesce((r.metadata -> 'forgotten')::boolean, false)
) as has_others
  from inserted;

-- name: confirm(tenant_id, ids, is_supported, full_confidence)
-- Restarts the decay of live rules and ends their fading. A distilled rule gets the confidence of a stored one once
-- something else supports it.
update rules
   set last_confirmed_at = now(),
       confidence = case
           when :is_supported and metadata ->> 'provenance' = 'distilled' then greatest(confidence, :full_confidence)
           else coalesce((metadata -> 'confidence_when_confirmed')::double precision, confidence)
       end,
       metadata = metadata - array['status', 'confidence_when_confirmed'] || case
           when :is_supported and metadata ->> 'provenance' = 'distilled' then '{"provenance": "supported"}'::jsonb
           else '{}'
       end
 where tenant_id = :tenant_id
   and id = any (:ids)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id, confidence, last_confirmed_at;

-- name: nearest(tenant_id, version, embedding, scopes, max_rows)
-- The live rules nearest to a vector.
select id, content, coalesce((metadata -> 'needs_inversion')::boolean, false) as awaits_inversion
  from rules
 where tenant_id = :tenant_id
   and embedding_version_id = :version
   and scope = any (:scopes)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
 order by embedding <=> :embedding, id
 limit :max_rows;

-- name: anti_patterns(tenant_id, scopes)
-- The anti-patterns in scope, with their original content.
select id, content, metadata ->> 'original_content' as original
  from rules
 where tenant_id = :tenant_id
   and scope = any (:scopes)
   and maturity = 'anti_pattern'
   and metadata ? 'original_content';

-- name: forgotten_since(tenant_id, scopes, since)
-- The rules in scope that a caller forgot since a time; one that decay forgot may be learned again.
select r.id, r.content
  from memory_events e
  join rules r on r.tenant_id = :tenant_id and r.id = e.entity_id
 where e.tenant_id = :tenant_id
   and e.event_type in ('rule_forgotten', 'rule_created_undone', 'rule_restored_undone')
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

-- name: lock_track_record(tenant_id, id)^
-- Locks the track record of a rule until the mark is written: a hundred marks at once count a hundred.
select maturity, applied_count as applied, success_count as successes, harmful_count as harms,
       effectiveness_score as effectiveness, now() - created_at as age, metadata
  from rules
 where tenant_id = :tenant_id
   and id = :id
   for update;

-- name: write_track_record(tenant_id, id, maturity, applied_count, success_count, harmful_count, effectiveness_score, metadata)!
-- Writes the track record of a rule after a mark.
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

-- name: record_application(tenant_id, rule_id, outcome, actor, session_id, request_id, context, has_receipts)$
-- Records an application of a rule and its outcome; returns the evidence that its session knew the rule.
insert into rule_applications (tenant_id, rule_id, outcome, actor, session_id, request_id, context)
select :tenant_id, :rule_id, :outcome, :actor, :session_id, :request_id,
       :context::jsonb || jsonb_build_object('evidence', case
           when not :has_receipts then 'unknown'
           else coalesce((
               select case when r.source = 'context' then 'told' else 'recalled' end
                 from session_receipts r
                 join session_receipt_lines l on l.tenant_id = :tenant_id and l.receipt_id = r.id
                where r.tenant_id = :tenant_id
                  and r.session_id = :session_id
                  and l.memory_id = :rule_id
                  and l.memory_type = 'rule'
                  and l.outcome = 'told'
                order by r.source <> 'context'
                limit 1
           ), 'none')
       end)
returning context ->> 'evidence';

-- name: edit(tenant_id, id, permanence, decay_rate, tags)$
-- Changes a live rule in place; a null leaves a value as it is. A new decay rate counts from now and from what is left
-- of the confidence, so that today's confidence stays; the next confirmation brings back the full one.
update rules
   set permanence = coalesce(:permanence, permanence),
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
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id;
