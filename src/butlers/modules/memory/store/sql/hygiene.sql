-- name: fact_groups(tenant_id)
-- The subjects with more than one live fact.
select subject, count(*) as facts
  from facts
 where tenant_id = :tenant_id
   and validity = 'active'
 group by subject
having count(*) > 1
 order by subject;

-- name: facts_of_subjects(tenant_id, subjects, version, max_characters, max_rows)
-- The live facts about these subjects, the newest first, with their vectors.
select id, subject, predicate, left(content, :max_characters) as content, scope, entity_id, created_at,
       metadata ->> 'provenance' as provenance, case when embedding_version_id = :version then embedding end as embedding
  from facts
 where tenant_id = :tenant_id
   and subject = any (:subjects)
   and validity = 'active'
 order by subject, created_at desc
 limit :max_rows;

-- name: rules(tenant_id, version, max_characters, max_rows)
-- The live rules, the newest first, with their vectors.
select id, left(content, :max_characters) as content, scope, created_at, metadata ->> 'provenance' as provenance,
       case when embedding_version_id = :version then embedding end as embedding
  from rules
 where tenant_id = :tenant_id
   and not coalesce((metadata -> 'forgotten')::boolean, false)
 order by created_at desc, id desc
 limit :max_rows;

-- name: contents(tenant_id, memory_type, after, max_rows)
-- The contents of live memories of one type, in the order of their ids.
select id, coalesce(subject || ' ' || predicate || ' ', '') || content as content
  from memories
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and is_live
   and id > :after
 order by id
 limit :max_rows;

-- name: unused_facts(tenant_id, days)
-- The live facts that nobody recalled since they were stored, this long ago or longer.
select id, subject, predicate, left(content, 300) as content
  from facts
 where tenant_id = :tenant_id
   and validity = 'active'
   and reference_count = 0
   and created_at < now() - make_interval(days => :days)
 order by created_at, id;

-- name: unjudged_rules(tenant_id, days)
-- The live rules that nobody marked since they were stored, this long ago or longer.
select id, left(content, 300) as content
  from rules
 where tenant_id = :tenant_id
   and not coalesce((metadata -> 'forgotten')::boolean, false)
   and applied_count = 0
   and created_at < now() - make_interval(days => :days)
 order by created_at, id;

-- name: echoes(tenant_id, ids, told_ids)
-- Those of these facts that were learned from an episode whose session was told the fact beside them.
select pair.id, pair.told_id
  from unnest(:ids::uuid[], :told_ids::uuid[]) as pair (id, told_id)
 where exists (
       select
         from facts f
         join episodes e on e.tenant_id = :tenant_id and e.id = f.source_episode_id
         join session_receipts r on r.tenant_id = :tenant_id and r.session_id = e.session_id
         join session_receipt_lines l on l.tenant_id = :tenant_id and l.receipt_id = r.id
        where f.tenant_id = :tenant_id
          and f.id = pair.id
          and l.memory_id = pair.told_id
          and l.outcome = 'told'
   );

-- name: count_live(tenant_id)^
-- The live facts, rules, episodes and entities of a tenant.
select (select count(*) from facts where tenant_id = :tenant_id and validity = 'active') as facts,
       (select count(*)
          from rules
         where tenant_id = :tenant_id and not coalesce((metadata -> 'forgotten')::boolean, false)) as rules,
       (select count(*)
          from episodes
         where tenant_id = :tenant_id and (expires_at is null or expires_at > now())) as episodes,
       (select count(*) from entities where tenant_id = :tenant_id and not (metadata ? 'merged_into')) as entities;
