-- name: erase_fact(tenant_id, id)$
-- Deletes a fact for good.
delete from facts where tenant_id = :tenant_id and id = :id returning content;

-- name: erase_rule(tenant_id, id)$
-- Deletes a rule for good, and what was said of its use.
delete from rules where tenant_id = :tenant_id and id = :id returning content;

-- name: erase_episode(tenant_id, id)$
-- Deletes an episode for good.
delete from episodes where tenant_id = :tenant_id and id = :id returning content;

-- name: erase_links(tenant_id, memory_type, ids)!
-- Deletes the edges of memories that are no more.
delete from memory_links
 where tenant_id = :tenant_id
   and ((source_type = :memory_type and source_id = any (:ids)) or (target_type = :memory_type and target_id = any (:ids)));

-- name: erase_answers(tenant_id, ids)!
-- Deletes kept answers that name what is no more.
delete from idempotency_keys
 where tenant_id = :tenant_id
   and answer is not null
   and exists (select from unnest(:ids::text[]) as id where strpos(answer::text, id) > 0);

-- name: erase_facts_of_entity(tenant_id, entity_id)
-- Deletes every fact about an entity, whatever its state.
delete from facts where tenant_id = :tenant_id and entity_id = :entity_id returning id;

-- name: erase_entity(tenant_id, entity_id)
-- Deletes an entity, and those that were merged into it.
with recursive names as (
    select id from entities where tenant_id = :tenant_id and id = :entity_id
    union
    select e.id
      from entities e
      join names n on e.metadata ->> 'merged_into' = n.id::text
     where e.tenant_id = :tenant_id
)
delete from entities e using names where e.tenant_id = :tenant_id and e.id = names.id
returning e.id, coalesce(e.metadata ->> 'former_name', e.canonical_name) as canonical_name, e.aliases;

-- name: some_links(tenant_id, most)$
-- Deletes some edges of a tenant.
with gone as (
    delete from memory_links
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from memory_links where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_facts(tenant_id, most)$
-- Deletes some facts of a tenant.
with gone as (
    delete from facts
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from facts where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_rules(tenant_id, most)$
-- Deletes some rules of a tenant.
with gone as (
    delete from rules
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from rules where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_episodes(tenant_id, most)$
-- Deletes some episodes of a tenant.
with gone as (
    delete from episodes
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from episodes where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_entities(tenant_id, most)$
-- Deletes some entities of a tenant.
with gone as (
    delete from entities
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from entities where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_sessions(tenant_id, most)$
-- Deletes some records of sessions of a tenant: prompts and answers are words too.
with gone as (
    delete from sessions
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from sessions where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_answers(tenant_id, most)$
-- Deletes some kept answers of a tenant.
with gone as (
    delete from idempotency_keys
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from idempotency_keys where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_runs(tenant_id, most)$
-- Deletes some records of consolidation of a tenant.
with gone as (
    delete from consolidation_runs
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from consolidation_runs where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: some_job_runs(tenant_id, most)$
-- Deletes some records of jobs of a tenant: why one failed is told in words.
with gone as (
    delete from job_runs
     where tenant_id = :tenant_id
       and ctid = any (array(select ctid from job_runs where tenant_id = :tenant_id limit :most))
    returning 1
)
select count(*) from gone;

-- name: left_of_tenant(tenant_id)^
-- What there is of a tenant, table by table.
select (select count(*) from facts where tenant_id = :tenant_id) as facts,
       (select count(*) from rules where tenant_id = :tenant_id) as rules,
       (select count(*) from rule_applications where tenant_id = :tenant_id) as rule_applications,
       (select count(*) from episodes where tenant_id = :tenant_id) as episodes,
       (select count(*) from entities where tenant_id = :tenant_id) as entities,
       (select count(*) from memory_links where tenant_id = :tenant_id) as memory_links,
       (select count(*) from sessions where tenant_id = :tenant_id) as sessions,
       (select count(*) from idempotency_keys where tenant_id = :tenant_id) as idempotency_keys,
       (select count(*) from consolidation_runs where tenant_id = :tenant_id) as consolidation_runs,
       (select count(*) from job_runs where tenant_id = :tenant_id) as job_runs;

-- name: still_said(tenant_id, words, most)
-- Where a tenant's memories and records still have these words, those in which a failure may have quoted them included.
select said.kind, said.id
  from (
      select 'fact' as kind, id, concat_ws(' ', subject, predicate, content, tags, metadata) as words
        from facts
       where tenant_id = :tenant_id
      union all
      select 'rule', id, concat_ws(' ', content, tags, metadata) from rules where tenant_id = :tenant_id
      union all
      select 'episode', id, concat_ws(' ', content, metadata, last_consolidation_error)
        from episodes
       where tenant_id = :tenant_id
      union all
      select 'entity', id, concat_ws(' ', canonical_name, aliases, metadata) from entities where tenant_id = :tenant_id
      union all
      select 'session', id, concat_ws(' ', prompt, answer, error) from sessions where tenant_id = :tenant_id
      union all
      select 'rule_application', id, context::text from rule_applications where tenant_id = :tenant_id
      union all
      select 'consolidation_run', id, concat_ws(' ', errors, error) from consolidation_runs where tenant_id = :tenant_id
      union all
      select 'job_run', id, concat_ws(' ', result, error) from job_runs where tenant_id = :tenant_id
  ) said
 where strpos(lower(said.words), lower(:words)) > 0
 limit :most;
