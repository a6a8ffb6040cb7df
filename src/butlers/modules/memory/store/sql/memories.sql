-- name: touch(tenant_id, fact_ids, rule_ids)
-- Notes that these facts and rules were referenced, and gives them. In the order of their ids, as everybody takes them: two who want the same never wait for each other.
with held_facts as materialized (
    select id from facts where tenant_id = :tenant_id and id = any (:fact_ids) order by id for no key update
), held_rules as materialized (
    select id from rules where tenant_id = :tenant_id and id = any (:rule_ids) order by id for no key update
), facts as (
    update facts
       set reference_count = reference_count + 1, last_referenced_at = now()
     where tenant_id = :tenant_id
       and id in (select id from held_facts)
    returning 'fact' as memory_type, id, content, subject, predicate, entity_id, scope, permanence, importance,
              null::text as maturity, null::double precision as effectiveness_score, tags, metadata,
              source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
), rules as (
    update rules
       set reference_count = reference_count + 1, last_referenced_at = now()
     where tenant_id = :tenant_id
       and id in (select id from held_rules)
    returning 'rule' as memory_type, id, content, null::text, null::text, null::uuid, scope, permanence,
              null::double precision, maturity, effectiveness_score, tags, metadata,
              source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
)
select * from facts
union all
select * from rules;

-- name: show(tenant_id, fact_ids, rule_ids, episode_ids)
-- These memories, as a list shows them.
select 'fact' as memory_type, id, content, subject, predicate, entity_id, scope, permanence, importance,
       null::text as maturity, null::double precision as effectiveness_score, null::text as butler,
       null::uuid as session_id, null::timestamptz as expires_at, tags, metadata, source_butler,
       reference_count, created_at, last_referenced_at, last_confirmed_at
  from facts
 where tenant_id = :tenant_id
   and id = any (:fact_ids)
union all
select 'rule', id, content, null, null, null, scope, permanence, null, maturity, effectiveness_score, null, null,
       null, tags, metadata, source_butler, reference_count, created_at, last_referenced_at, last_confirmed_at
  from rules
 where tenant_id = :tenant_id
   and id = any (:rule_ids)
union all
select 'episode', id, content, null, null, null, null, null, importance, null, null, butler, session_id,
       expires_at, null, metadata, null, reference_count, created_at, last_referenced_at, null
  from episodes
 where tenant_id = :tenant_id
   and id = any (:episode_ids);

-- name: get_fact(tenant_id, id)^
-- A whole fact, whatever its state; noted as referenced.
update facts
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, subject, predicate, content, importance, confidence as stored_confidence,
          effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
          permanence, source_butler, source_episode_id, supersedes_id, entity_id, validity, scope,
          reference_count, created_at, last_referenced_at, last_confirmed_at, tags, metadata;

-- name: get_rule(tenant_id, id)^
-- A whole rule, whatever its state; noted as referenced.
update rules
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, content, scope, maturity, confidence as stored_confidence,
          effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence, decay_rate,
          permanence, effectiveness_score, applied_count, success_count, harmful_count, source_episode_id,
          source_butler, created_at, last_applied_at, last_evaluated_at, last_confirmed_at, reference_count,
          last_referenced_at, tags, metadata;

-- name: get_episode(tenant_id, id)^
-- A whole episode, whatever its state; noted as referenced.
update episodes
   set reference_count = reference_count + 1, last_referenced_at = now()
 where tenant_id = :tenant_id
   and id = :id
returning id, tenant_id, butler, session_id, content, importance, reference_count, consolidated,
          consolidation_status, consolidation_attempts, retry_count, last_consolidation_error, last_error,
          next_consolidation_retry_at, created_at, last_referenced_at, expires_at, coalesce(expires_at <= now(), false) as expired,
          metadata;

-- name: state_of_fact(tenant_id, id)$
-- Where a fact stands in its life.
select validity
  from facts
 where tenant_id = :tenant_id
   and id = :id;

-- name: state_of_rule(tenant_id, id)$
-- Where a rule stands in its life.
select case when coalesce((metadata -> 'forgotten')::boolean, false) then 'forgotten' else 'active' end
  from rules
 where tenant_id = :tenant_id
   and id = :id;

-- name: state_of_episode(tenant_id, id)$
-- Where an episode stands in its life.
select case
           when metadata ? 'forgotten_until' then 'forgotten'
           when expires_at <= now() then 'expired'
           else 'active'
       end
  from episodes
 where tenant_id = :tenant_id
   and id = :id;

-- name: graph_size(index)$
-- About how many rows the graph with that name holds; nothing where it is not a graph.
select greatest(t.reltuples, 0)::bigint
  from pg_index x
  join pg_class i on i.oid = x.indexrelid
  join pg_class t on t.oid = x.indrelid
  join pg_am am on am.oid = i.relam
 where i.relnamespace = 'public'::regnamespace
   and i.relname = :index
   and am.amname = 'hnsw'
   and x.indisvalid;

-- name: plan(mode)!
-- Whether statements are planned for their values each time, from now on until the transaction ends.
select set_config('plan_cache_mode', :mode, true);

-- name: word_frequencies()
-- How often each word stands in the current tenant's live facts, as a share of a sample; rare words are left out.
with sample as (
    select count(*) as size
      from (select 1 from facts where tenant_id = current_tenant() and validity = 'active' limit 3000) f
)
select word, ndoc::double precision / sample.size as share
  from sample,
       ts_stat($q$
           select search_vector
             from facts
            where tenant_id = current_tenant()
              and validity = 'active'
            order by id
            limit 3000
       $q$)
 where ndoc > 15;

-- name: closer(tenant_id, version, embedding, words, fact_ids, rule_ids, episode_ids)
-- How near each of these memories is, and which of the words it has.
with asked as materialized (
    select word, one_word(word) as query from unnest(:words::text[]) as word
), these as (
    select id, embedding_version_id, embedding, search_vector
      from facts
     where tenant_id = :tenant_id
       and id = any (:fact_ids)
    union all
    select id, embedding_version_id, embedding, search_vector
      from rules
     where tenant_id = :tenant_id
       and id = any (:rule_ids)
    union all
    select id, embedding_version_id, embedding, search_vector
      from episodes
     where tenant_id = :tenant_id
       and id = any (:episode_ids)
)
select id,
       case when embedding_version_id = :version then 1 - (embedding <=> :embedding) end as similarity,
       array(select word from asked where search_vector @@ query) as words
  from these;

-- name: lexemes(question)$
-- The words of a question as the index knows them, in the order they come in.
select array(select lexeme from unnest(to_tsvector('english', :question)) order by positions[1], lexeme);
