-- name: fact(tenant_id, id, max_characters)^
-- A fact in any state, with the beginning of its content and the name of its entity.
select f.id, f.subject, f.predicate, left(f.content, :max_characters) as content, length(f.content) as characters,
       f.importance, f.confidence as stored_confidence,
       effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence, f.decay_rate,
       f.permanence, f.source_butler, f.entity_id, e.canonical_name as entity_name, f.scope, f.validity,
       f.reference_count, f.created_at, f.last_referenced_at, f.last_confirmed_at, f.tags, f.metadata
  from facts f
  left join entities e on e.tenant_id = :tenant_id and e.id = f.entity_id
 where f.tenant_id = :tenant_id
   and f.id = :id;

-- name: rule(tenant_id, id, max_characters)^
-- A rule in any state, with the beginning of its content.
select id, left(content, :max_characters) as content, length(content) as characters, scope, maturity,
       confidence as stored_confidence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate, permanence,
       effectiveness_score as effectiveness, applied_count, success_count, harmful_count, source_butler, created_at,
       last_applied_at, last_confirmed_at, reference_count, last_referenced_at, tags,
       metadata - array['original_content', 'warning_content'] as metadata,
       left(metadata ->> 'original_content', :max_characters) as original,
       length(metadata ->> 'original_content') as original_characters
  from rules
 where tenant_id = :tenant_id
   and id = :id;

-- name: episode(tenant_id, id, max_characters)^
-- An episode in any state, with the beginning of its content.
select id, butler, session_id, left(content, :max_characters) as content, length(content) as characters, importance,
       reference_count, consolidation_status, consolidation_attempts, last_consolidation_error,
       next_consolidation_retry_at, leased_until > now() as is_leased, created_at, last_referenced_at, expires_at,
       coalesce(expires_at <= now(), false) as is_expired, metadata
  from episodes
 where tenant_id = :tenant_id
   and id = :id;

-- name: entity(tenant_id, id)^
-- An entity, merged or not.
select id, canonical_name, entity_type, aliases, metadata, metadata ->> 'merged_into' as merged_into, created_at,
       updated_at
  from entities
 where tenant_id = :tenant_id
   and id = :id;

-- name: events(tenant_id, entity_type, entity_id, max_rows)
-- The latest events of one memory or entity, newest first.
select id, event_type, entity_type, entity_id, occurred_at, actor, request_id, payload
  from memory_events
 where tenant_id = :tenant_id
   and entity_type = :entity_type
   and entity_id = :entity_id
 order by occurred_at desc, id
 limit :max_rows;

-- name: superseded(tenant_id, id, max_characters, max_rows)
-- The facts that a fact superseded, directly and indirectly, latest first.
with recursive chain as (
    select id, supersedes_id, 0 as step from facts where tenant_id = :tenant_id and id = :id
    union all
    select f.id, f.supersedes_id, c.step + 1
      from chain c
      join facts f on f.tenant_id = :tenant_id and f.id = c.supersedes_id
     where c.step < :max_rows
)
select f.id, left(f.content, :max_characters) as content, f.validity, f.created_at
  from chain c
  join facts f on f.tenant_id = :tenant_id and f.id = c.id
 where c.step > 0
 order by c.step
 limit :max_rows;

-- name: superseding(tenant_id, id, max_characters, max_rows)
-- The facts that superseded a fact, directly and indirectly, earliest first.
with recursive chain as (
    select id, 0 as step from facts where tenant_id = :tenant_id and id = :id
    union all
    select f.id, c.step + 1
      from chain c
      join facts f on f.tenant_id = :tenant_id and f.supersedes_id = c.id
     where c.step < :max_rows
)
select f.id, left(f.content, :max_characters) as content, f.validity, f.created_at
  from chain c
  join facts f on f.tenant_id = :tenant_id and f.id = c.id
 where c.step > 0
 order by c.step, f.created_at, f.id
 limit :max_rows;

-- name: superseded_in_merges(tenant_id, id, max_characters, max_rows)
-- The facts that a fact superseded in a merge of entities: only its links name them.
select f.id, left(f.content, :max_characters) as content, f.validity, f.created_at
  from memory_links l
  join facts f on f.tenant_id = :tenant_id and f.id = l.target_id
 where l.tenant_id = :tenant_id
   and l.source_type = 'fact'
   and l.source_id = :id
   and l.target_type = 'fact'
   and l.relation = 'supersedes'
   and not exists (
       select from facts s where s.tenant_id = :tenant_id and s.id = :id and s.supersedes_id = l.target_id
   )
 order by f.created_at desc, f.id
 limit :max_rows;

-- name: evidence(tenant_id, memory_type, id, max_characters, max_rows)
-- The episodes that a memory is derived from or supported by. Of a deleted one the audit trail tells the butler and
-- the time.
with linked as (
    select target_id as episode_id, relation, created_at
      from memory_links
     where tenant_id = :tenant_id and source_type = :memory_type and source_id = :id and target_type = 'episode'
    union all
    select source_id, relation, created_at
      from memory_links
     where tenant_id = :tenant_id and target_type = :memory_type and target_id = :id and source_type = 'episode'
), newest as (
    select episode_id, relation, created_at from linked order by created_at desc, episode_id limit :max_rows
)
select n.episode_id, n.relation, e.butler, left(e.content, :max_characters) as content, e.created_at,
       coalesce(e.expires_at <= now(), false) as is_expired, gone.payload as gone, gone.occurred_at as gone_at
  from newest n
  left join episodes e on e.tenant_id = :tenant_id and e.id = n.episode_id
  left join lateral (
      select v.payload, v.occurred_at
        from memory_events v
       where v.tenant_id = :tenant_id
         and v.entity_type = 'episode'
         and v.entity_id = n.episode_id
         and v.event_type in ('episode_expired', 'episode_crowded_out')
         and e.id is null
       order by v.occurred_at desc
       limit 1
  ) gone on true
 order by n.created_at desc, n.episode_id;

-- name: run(tenant_id, id)^
-- A consolidation run.
select id, butler, status, started_at, episodes, facts_created, facts_updated, rules_created, confirmed
  from consolidation_runs
 where tenant_id = :tenant_id
   and id = :id;

-- name: marks(tenant_id, rule_id, max_rows)
-- The latest marks on a rule that were not undone, newest first, with the maturity that each led to.
with undone as (
    select coalesce(array_agg(u.payload ->> 'undone'), '{}') as requests
      from memory_events u
     where u.tenant_id = :tenant_id
       and u.entity_type = 'rule'
       and u.entity_id = :rule_id
       and u.payload ? 'undone'
)
select a.outcome, a.applied_at, a.actor, a.session_id, a.context ->> 'reason' as reason,
       a.context ->> 'evidence' as evidence, e.payload ->> 'maturity' as maturity
  from rule_applications a
  left join lateral (
      select v.payload
        from memory_events v
       where v.tenant_id = :tenant_id
         and v.entity_type = 'rule'
         and v.entity_id = a.rule_id
         and v.occurred_at = a.applied_at
         and v.event_type = 'rule_marked_' || a.outcome
       limit 1
  ) e on true
 where a.tenant_id = :tenant_id
   and a.rule_id = :rule_id
   and coalesce(a.request_id <> all ((select requests from undone)::text[]), true)
 order by a.applied_at desc, a.id
 limit :max_rows;

-- name: derived(tenant_id, episode_id, max_characters, max_rows)
-- The facts and rules that are derived from an episode or supported by it.
with linked as (
    select source_type as memory_type, source_id as id, relation, created_at
      from memory_links
     where tenant_id = :tenant_id and target_type = 'episode' and target_id = :episode_id and source_type <> 'episode'
    union all
    select target_type, target_id, relation, created_at
      from memory_links
     where tenant_id = :tenant_id and source_type = 'episode' and source_id = :episode_id and target_type <> 'episode'
), newest as (
    select memory_type, id, relation, created_at from linked order by created_at desc, id limit :max_rows
)
select n.memory_type, n.id, n.relation, m.subject, m.predicate, left(m.content, :max_characters) as content, m.state,
       m.confidence
  from newest n
  join memories m on m.tenant_id = :tenant_id and m.memory_type = n.memory_type and m.id = n.id
 order by n.memory_type, n.created_at, n.id;

-- name: facts_of_entity(tenant_id, entity_id, max_characters, max_rows)
-- The live facts of an entity in the order of their key, with one episode of each.
select f.id, f.subject, f.predicate, left(f.content, :max_characters) as content, f.scope, f.created_at,
       effective_confidence(f.confidence, f.decay_rate, f.last_confirmed_at, now()) as confidence, f.metadata,
       (select coalesce(array_agg(l.target_id), '{}')
          from (
              select target_id
                from memory_links
               where tenant_id = :tenant_id and source_type = 'fact' and source_id = f.id
                 and target_type = 'episode' and relation = 'derived_from'
               limit 3
          ) l) as episode_ids
  from facts f
 where f.tenant_id = :tenant_id
   and f.entity_id = :entity_id
   and f.validity = 'active'
 order by f.scope, f.predicate
 limit :max_rows;

-- name: changes_of_entity(tenant_id, entity_id, max_facts, max_rows)
-- The latest events of an entity and of its facts, newest first.
with about as (
    select 'entity' as entity_type, :entity_id::uuid as id, null as predicate
    union all
    (select 'fact', id, predicate
       from facts
      where tenant_id = :tenant_id and entity_id = :entity_id
      limit :max_facts)
)
select e.event_type, e.entity_type, e.entity_id, e.occurred_at, e.actor, e.request_id, e.payload, a.predicate
  from about a
 cross join lateral (
      select v.id, v.event_type, v.entity_type, v.entity_id, v.occurred_at, v.actor, v.request_id, v.payload
        from memory_events v
       where v.tenant_id = :tenant_id
         and v.entity_type = a.entity_type
         and v.entity_id = a.id
       order by v.occurred_at desc
       limit :max_rows
  ) e
 order by e.occurred_at desc, e.id
 limit :max_rows;

-- name: namesakes(tenant_id, id, names, max_rows)
-- Other live entities with one of these names.
select distinct e.id, e.canonical_name, e.entity_type
  from unnest(:names::text[]) as n (name)
 cross join lateral (
      select id from find_entities_by_name(n.name, null, :max_rows)
      union all
      select id from find_entities_by_alias(n.name, null, :max_rows)
  ) found
  join entities e on e.tenant_id = :tenant_id and e.id = found.id
 where e.id <> :id
 order by e.canonical_name, e.id
 limit :max_rows;
