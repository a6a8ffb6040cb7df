-- name: rules_to_invert(tenant_id, after, max_rows)
-- The next rules after an id that did enough harm to become anti-patterns.
select id, content, coalesce(metadata -> 'harmful_reasons', '[]') as reasons
  from rules
 where tenant_id = :tenant_id
   and id > :after
   and coalesce((metadata -> 'needs_inversion')::boolean, false)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and maturity <> 'anti_pattern'
 order by id
 limit :max_rows;

-- name: invert_rule(tenant_id, id, original, content, searchable, embedding, embedding_version_id)$
-- Turns a rule into an anti-pattern, once; an anti-pattern does not decay.
update rules
   set maturity = 'anti_pattern',
       content = :content,
       search_vector = to_tsvector('english', :searchable),
       embedding = :embedding,
       embedding_version_id = :embedding_version_id,
       permanence = 'permanent',
       decay_rate = 0,
       last_confirmed_at = now(),
       last_evaluated_at = now(),
       metadata = metadata - array['needs_inversion', 'status', 'warning_content']
                  || jsonb_build_object('original_content', content)
 where tenant_id = :tenant_id
   and id = :id
   and content = :original
   and coalesce((metadata -> 'needs_inversion')::boolean, false)
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and maturity <> 'anti_pattern'
returning id;

-- name: inversion(tenant_id, id)^
-- The original content of an anti-pattern, and the state of the rule before its latest inversion, if an event tells it.
select r.metadata ->> 'original_content' as original,
       (
           select e.payload -> 'before'
             from memory_events e
            where e.tenant_id = :tenant_id
              and e.entity_type = 'rule'
              and e.entity_id = r.id
              and e.event_type = 'rule_inverted'
            order by e.occurred_at desc, e.id desc
            limit 1
       ) as before
  from rules r
 where r.tenant_id = :tenant_id
   and r.id = :id
   and r.maturity = 'anti_pattern'
   and r.metadata ? 'original_content'
   and not coalesce((r.metadata -> 'forgotten')::boolean, false);

-- name: revert_inversion(tenant_id, id, content, searchable, embedding, embedding_version_id, maturity, permanence, decay_rate)$
-- Turns an anti-pattern into the rule it was, confirmed now; the metadata keeps the warning.
update rules
   set maturity = :maturity,
       content = :content,
       search_vector = to_tsvector('english', :searchable),
       embedding = :embedding,
       embedding_version_id = :embedding_version_id,
       permanence = :permanence,
       decay_rate = :decay_rate,
       last_confirmed_at = now(),
       last_evaluated_at = now(),
       metadata = metadata - 'original_content' || jsonb_build_object('warning_content', content)
 where tenant_id = :tenant_id
   and id = :id
   and maturity = 'anti_pattern'
   and metadata ->> 'original_content' = :content
   and not coalesce((metadata -> 'forgotten')::boolean, false)
returning id;

-- name: warnings_of(tenant_id, ids)
-- The warnings that reverted rules were.
select id, metadata ->> 'warning_content' as content
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[])
   and metadata ? 'warning_content';

-- name: warn_again(tenant_id, id, content, searchable, embedding, embedding_version_id)$
-- Gives a reverted rule the content of the warning it was.
update rules
   set content = :content,
       search_vector = to_tsvector('english', :searchable),
       embedding = :embedding,
       embedding_version_id = :embedding_version_id,
       metadata = metadata - 'warning_content' || jsonb_build_object('original_content', content)
 where tenant_id = :tenant_id
   and id = :id
   and metadata ->> 'warning_content' = :content
returning id;
