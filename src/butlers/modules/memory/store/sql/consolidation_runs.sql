-- name: list(tenant_id, from_time, from_id, is_backward, max_rows)
-- Consolidation runs, newest first, after or before a position, with the people who judged something of each.
select r.id, r.butler, r.status, r.started_at, r.finished_at, r.session_id, r.episodes, r.facts_created, r.facts_updated,
       r.rules_created, r.confirmed, jsonb_array_length(r.errors) + jsonb_array_length(r.parse_errors) as dropped,
       r.input_tokens, r.output_tokens, r.tokens_estimated, r.error, looks.actors as looked_at_by
  from consolidation_runs r
  left join lateral (
      select array_agg(distinct l.actor order by l.actor) as actors
        from memory_events c
        join memory_events l
          on l.tenant_id = :tenant_id and l.entity_type = c.entity_type and l.entity_id = c.entity_id
       where c.tenant_id = :tenant_id
         and c.request_id = r.id::text
         and c.event_type in ('fact_created', 'rule_created')
         and l.request_id is distinct from c.request_id
         and l.actor is not null
         and (l.event_type in ('fact_looked_at', 'rule_looked_at')
           or (l.event_type ~ '^(fact|rule)_(confirmed|forgotten|edited)$' and not l.payload ? 'by'))
  ) looks on true
 where r.tenant_id = :tenant_id
   and (:from_id::uuid is null
     or case when :is_backward::boolean then (r.started_at, r.id) > (:from_time::timestamptz, :from_id)
             else (r.started_at, r.id) < (:from_time, :from_id) end)
 order by case when not :is_backward then r.started_at end desc, case when not :is_backward then r.id end desc,
          case when :is_backward then r.started_at end, case when :is_backward then r.id end
 limit :max_rows;

-- name: get(tenant_id, id)^
-- One consolidation run.
select id, butler, status, started_at, finished_at, session_id, episodes, facts_created, facts_updated, rules_created,
       confirmed, known_left_out, errors, parse_errors, input_tokens, output_tokens, tokens_estimated, error
  from consolidation_runs
 where tenant_id = :tenant_id
   and id = :id;

-- name: changes(tenant_id, run_id, max_characters)
-- The memories that a run created or confirmed, with their present state, and the facts that it replaced.
select e.event_type, e.entity_type as memory_type, e.entity_id as id, e.payload, e.occurred_at,
       left(m.subject, :max_characters) as subject, left(m.predicate, :max_characters) as predicate,
       left(m.content, :max_characters) as content, m.scope, m.state, m.metadata ->> 'provenance' as provenance,
       old.id as replaced_id, left(old.content, :max_characters) as replaced_content, old.validity as replaced_state
  from memory_events e
  left join memories m on m.tenant_id = :tenant_id and m.memory_type = e.entity_type and m.id = e.entity_id
  left join facts old on old.tenant_id = :tenant_id and old.id = (e.payload ->> 'supersedes_id')::uuid
 where e.tenant_id = :tenant_id
   and e.request_id = :run_id::text
   and e.event_type in ('fact_created', 'rule_created', 'fact_confirmed', 'rule_confirmed')
 order by e.event_type, m.created_at, e.entity_id;

-- name: episodes(tenant_id, run_id, max_characters)
-- The episodes that a run read, in the order in which they happened; a deleted one has no content.
select e.entity_id as id, e.event_type, left(p.content, :max_characters) as content, p.created_at,
       p.metadata ? 'forgotten_until' as is_forgotten
  from memory_events e
  left join episodes p on p.tenant_id = :tenant_id and p.id = e.entity_id
 where e.tenant_id = :tenant_id
   and e.request_id = :run_id::text
   and e.event_type in ('episode_consolidated', 'episode_consolidation_failed', 'episode_dead_lettered')
 order by p.created_at nulls first, e.entity_id;

-- name: evidence(tenant_id, episode_ids, memory_ids)
-- The links between these episodes and memories.
select source_id as memory_id, target_id as episode_id
  from memory_links
 where tenant_id = :tenant_id
   and source_id = any (:memory_ids::uuid[])
   and target_type = 'episode'
   and relation = 'derived_from'
   and target_id = any (:episode_ids::uuid[])
union
select target_id, source_id
  from memory_links
 where tenant_id = :tenant_id
   and target_id = any (:memory_ids)
   and source_type = 'episode'
   and relation = 'supports'
   and source_id = any (:episode_ids);

-- name: withdrawn(tenant_id, run_id, memory_ids)
-- The memories whose confirmation by a run was taken back, unless that was undone.
select distinct e.entity_id as id
  from memory_events e
 where e.tenant_id = :tenant_id
   and e.entity_type in ('fact', 'rule')
   and e.entity_id = any (:memory_ids::uuid[])
   and e.event_type in ('fact_confirmation_withdrawn', 'rule_confirmation_withdrawn')
   and e.payload ->> 'run' = :run_id::text
   and not exists (
       select
         from memory_events u
        where u.tenant_id = :tenant_id
          and u.entity_type = e.entity_type
          and u.entity_id = e.entity_id
          and u.payload ->> 'undone' = e.request_id
   );

-- name: delete_support(tenant_id, memory_type, memory_id, episode_ids, created_at)
-- Deletes the links that a run made from its episodes to a memory that they support.
delete from memory_links
 where tenant_id = :tenant_id
   and source_type = 'episode'
   and source_id = any (:episode_ids::uuid[])
   and target_type = :memory_type
   and target_id = :memory_id
   and relation = 'supports'
   and created_at = :created_at
returning source_id as episode_id, created_at;

-- name: restore_support(tenant_id, memory_type, memory_id, links)!
-- Makes deleted links from episodes to a memory again, with their times.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation, created_at)
select :tenant_id, 'episode', l.episode_id, :memory_type, :memory_id, 'supports', l.created_at
  from jsonb_to_recordset(:links::jsonb) as l (episode_id uuid, created_at timestamptz)
on conflict do nothing;
