-- name: erase_memory(tenant_id, memory_type, id)$
-- Deletes a memory and returns its content; the applications of a rule go with it.
with erased_facts as (
    delete from facts where :memory_type = 'fact' and tenant_id = :tenant_id and id = :id returning content
), erased_rules as (
    delete from rules where :memory_type = 'rule' and tenant_id = :tenant_id and id = :id returning content
), erased_episodes as (
    delete from episodes where :memory_type = 'episode' and tenant_id = :tenant_id and id = :id returning content
)
select content from erased_facts
union all
select content from erased_rules
union all
select content from erased_episodes;

-- name: erase_links(tenant_id, memory_type, ids)!
-- Deletes the links of erased memories.
delete from memory_links
 where tenant_id = :tenant_id
   and ((source_type = :memory_type and source_id = any (:ids)) or (target_type = :memory_type and target_id = any (:ids)));

-- name: erase_receipt_lines(tenant_id, memory_type, ids)!
-- Deletes the lines of receipts that name erased memories.
delete from session_receipt_lines
 where tenant_id = :tenant_id
   and memory_type = :memory_type
   and memory_id = any (:ids);

-- name: erase_proposals(tenant_id, ids)!
-- Deletes the proposals that come from erased episodes or are about erased memories.
delete from consolidation_proposals
 where tenant_id = :tenant_id
   and (evidence && :ids::uuid[] or target_id = any (:ids) or memory_id = any (:ids));

-- name: erase_edit_history(tenant_id, record_type, ids)!
-- Deletes the words that edits of erased records replaced.
delete from edit_history where tenant_id = :tenant_id and record_type = :record_type and record_id = any (:ids);

-- name: erase_stored_answers(tenant_id, ids)!
-- Deletes the stored answers that name an erased record.
delete from idempotency_keys
 where tenant_id = :tenant_id
   and answer is not null
   and exists (select from unnest(:ids::text[]) as id where strpos(answer::text, id) > 0);

-- name: erase_facts_of_entity(tenant_id, entity_id)
-- Deletes every fact about an entity, in any state.
delete from facts where tenant_id = :tenant_id and entity_id = :entity_id returning id;

-- name: erase_entity(tenant_id, entity_id)
-- Deletes an entity and those that were merged into it.
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

-- name: erase_rows(tenant_id, table_name, max_rows)$
-- Deletes some of a tenant's rows of one table and counts them. Sessions and job runs quote content, so they go as
-- well.
with erased_memory_links as (
    delete from memory_links
     where :table_name = 'memory_links'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from memory_links where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_session_receipt_lines as (
    delete from session_receipt_lines
     where :table_name = 'session_receipt_lines'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from session_receipt_lines where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_session_receipts as (
    delete from session_receipts
     where :table_name = 'session_receipts'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from session_receipts where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_browser_sessions as (
    delete from browser_sessions
     where :table_name = 'browser_sessions'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from browser_sessions where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_edit_history as (
    delete from edit_history
     where :table_name = 'edit_history'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from edit_history where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_facts as (
    delete from facts
     where :table_name = 'facts'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from facts where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_rules as (
    delete from rules
     where :table_name = 'rules'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from rules where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_episodes as (
    delete from episodes
     where :table_name = 'episodes'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from episodes where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_entities as (
    delete from entities
     where :table_name = 'entities'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from entities where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_sessions as (
    delete from sessions
     where :table_name = 'sessions'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from sessions where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_idempotency_keys as (
    delete from idempotency_keys
     where :table_name = 'idempotency_keys'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from idempotency_keys where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_consolidation_runs as (
    delete from consolidation_runs
     where :table_name = 'consolidation_runs'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from consolidation_runs where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_consolidation_proposals as (
    delete from consolidation_proposals
     where :table_name = 'consolidation_proposals'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from consolidation_proposals where tenant_id = :tenant_id limit :max_rows))
    returning 1
), erased_job_runs as (
    delete from job_runs
     where :table_name = 'job_runs'
       and tenant_id = :tenant_id
       and ctid = any (array(select ctid from job_runs where tenant_id = :tenant_id limit :max_rows))
    returning 1
)
select (select count(*) from erased_memory_links)
     + (select count(*) from erased_session_receipt_lines)
     + (select count(*) from erased_session_receipts)
     + (select count(*) from erased_browser_sessions)
     + (select count(*) from erased_edit_history)
     + (select count(*) from erased_facts)
     + (select count(*) from erased_rules)
     + (select count(*) from erased_episodes)
     + (select count(*) from erased_entities)
     + (select count(*) from erased_sessions)
     + (select count(*) from erased_idempotency_keys)
     + (select count(*) from erased_consolidation_runs)
     + (select count(*) from erased_consolidation_proposals)
     + (select count(*) from erased_job_runs);

-- name: count_remaining(tenant_id)^
-- How many rows a tenant has, table by table.
select (select count(*) from facts where tenant_id = :tenant_id) as facts,
       (select count(*) from rules where tenant_id = :tenant_id) as rules,
       (select count(*) from rule_applications where tenant_id = :tenant_id) as rule_applications,
       (select count(*) from episodes where tenant_id = :tenant_id) as episodes,
       (select count(*) from entities where tenant_id = :tenant_id) as entities,
       (select count(*) from memory_links where tenant_id = :tenant_id) as memory_links,
       (select count(*) from session_receipt_lines where tenant_id = :tenant_id) as session_receipt_lines,
       (select count(*) from session_receipts where tenant_id = :tenant_id) as session_receipts,
       (select count(*) from browser_sessions where tenant_id = :tenant_id) as browser_sessions,
       (select count(*) from edit_history where tenant_id = :tenant_id) as edit_history,
       (select count(*) from sessions where tenant_id = :tenant_id) as sessions,
       (select count(*) from idempotency_keys where tenant_id = :tenant_id) as idempotency_keys,
       (select count(*) from consolidation_runs where tenant_id = :tenant_id) as consolidation_runs,
       (select count(*) from consolidation_proposals where tenant_id = :tenant_id) as consolidation_proposals,
       (select count(*) from job_runs where tenant_id = :tenant_id) as job_runs;

-- name: find_mentions(tenant_id, phrase, max_rows)
-- The memories and records of a tenant that contain a phrase, including errors that may quote it.
select texts.kind, texts.id
  from (
      select 'fact' as kind, id, concat_ws(' ', subject, predicate, content, tags, metadata) as text
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
      select record_type, record_id, concat_ws(' ', before, after) from edit_history where tenant_id = :tenant_id
      union all
      select 'session', id, concat_ws(' ', prompt, answer, error) from sessions where tenant_id = :tenant_id
      union all
      select 'rule_application', id, context::text from rule_applications where tenant_id = :tenant_id
      union all
      select 'consolidation_run', id, concat_ws(' ', errors, error) from consolidation_runs where tenant_id = :tenant_id
      union all
      select 'proposal', id, action::text from consolidation_proposals where tenant_id = :tenant_id
      union all
      select 'job_run', id, concat_ws(' ', result, error) from job_runs where tenant_id = :tenant_id
  ) texts
 where strpos(lower(texts.text), lower(:phrase)) > 0
 limit :max_rows;
