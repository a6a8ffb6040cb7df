-- name: stream_live(tenant_id)
-- Every live entity, fact, rule and episode of a tenant in one snapshot, and the number of all: facts by the name of what they are
-- about, each entity before its facts, then relations, rules and episodes.
with everything as (
    select 0 as place, 'entity' as kind, e.canonical_name as name, coalesce(e.metadata ->> 'type', e.entity_type) as entity_type,
           '' as predicate, '' as content, '[]'::jsonb as tags, '' as scope, '' as relation, e.created_at, e.id, 0 as step
      from entities e
     where e.tenant_id = :tenant_id
       and not (e.metadata ? 'merged_into')
    union all
    select case when f.tags ? 'relation' then 1 else 0 end, case when f.tags ? 'relation' then 'relation' else 'fact' end,
           coalesce(e.canonical_name, f.subject), '', f.predicate, f.content, f.tags, f.scope,
           coalesce(f.metadata #>> '{source,metadata,relation}', ''), f.created_at, f.id, 1
      from facts f
      left join entities e on e.tenant_id = :tenant_id and e.id = f.entity_id
     where f.tenant_id = :tenant_id
       and f.validity = 'active'
    union all
    select 2, 'rule', '', '', '', r.content, r.tags, r.scope, '', r.created_at, r.id, 1
      from rules r
     where r.tenant_id = :tenant_id
       and not coalesce((r.metadata -> 'forgotten')::boolean, false)
    union all
    select 3, 'episode', '', '', '', s.content, '[]', s.butler, '', s.created_at, s.id, 1
      from episodes s
     where s.tenant_id = :tenant_id
       and not (s.metadata ? 'forgotten_until')
       and (s.expires_at is null or s.expires_at > now())
)
select kind, name, entity_type, predicate, content, tags, scope, relation, created_at, count(*) over () as total
  from everything
 order by place, name collate "C", step, predicate collate "C", created_at, id;
