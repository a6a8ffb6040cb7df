-- name: stream_records(tenant_id, vectors)
-- Every record of a tenant in one snapshot: the counts first, then each record after those it names.
with everything as (
    select 0 as place, 'counts' as kind, jsonb_build_object(
               'embedding_version', (select count(*) from embedding_versions where tenant_id = :tenant_id),
               'entity', (select count(*) from entities where tenant_id = :tenant_id),
               'episode', (select count(*) from episodes where tenant_id = :tenant_id),
               'fact', (select count(*) from facts where tenant_id = :tenant_id),
               'rule', (select count(*) from rules where tenant_id = :tenant_id),
               'link', (select count(*) from memory_links where tenant_id = :tenant_id),
               'rule_application', (select count(*) from rule_applications where tenant_id = :tenant_id),
               'event', (select count(*) from memory_events where tenant_id = :tenant_id)
           ) as record, null::vector as embedding, null::timestamptz as at, '' as key
    union all
    select 1, 'embedding_version', to_jsonb(r), null, r.created_at, r.id::text
      from (
          select id, model, version, dimensions, created_at
            from embedding_versions
           where tenant_id = :tenant_id
      ) r
    union all
    select 2, 'entity', to_jsonb(r), null, r.created_at, r.id::text
      from (
          select id, canonical_name, entity_type, aliases, metadata, created_at, updated_at
            from entities
           where tenant_id = :tenant_id
      ) r
    union all
    select 3, 'episode', to_jsonb(r) - 'embedding', r.embedding, r.created_at, r.id::text
      from (
          select id, butler, session_id, content, importance, reference_count, consolidation_status,
                 consolidation_attempts, last_consolidation_error, next_consolidation_retry_at, created_at,
                 last_referenced_at, expires_at, metadata, embedding_version_id,
                 case when :vectors then embedding end as embedding
            from episodes
           where tenant_id = :tenant_id
      ) r
    union all
    select 4, 'fact', to_jsonb(r) - 'embedding', r.embedding, r.created_at, r.id::text
      from (
          select id, subject, predicate, content, importance, confidence, decay_rate, permanence, source_butler,
                 source_episode_id, supersedes_id, entity_id, validity, scope, reference_count, created_at,
                 last_referenced_at, last_confirmed_at, tags, metadata, embedding_version_id,
                 case when :vectors then embedding end as embedding
            from facts
           where tenant_id = :tenant_id
      ) r
    union all
    select 5, 'rule', to_jsonb(r) - 'embedding', r.embedding, r.created_at, r.id::text
      from (
          select id, content, scope, maturity, confidence, decay_rate, permanence, effectiveness_score,
                 applied_count, success_count, harmful_count, source_episode_id, source_butler, created_at,
                 last_applied_at, last_evaluated_at, last_confirmed_at, reference_count, last_referenced_at, tags,
                 metadata, embedding_version_id, case when :vectors then embedding end as embedding
            from rules
           where tenant_id = :tenant_id
      ) r
    union all
    select 6, 'link', to_jsonb(r), null, r.created_at,
           concat_ws(' ', r.source_type, r.source_id, r.target_type, r.target_id)
      from (
          select source_type, source_id, target_type, target_id, relation, created_at
            from memory_links
           where tenant_id = :tenant_id
      ) r
    union all
    select 7, 'rule_application', to_jsonb(r), null, r.applied_at, r.id::text
      from (
          select id, rule_id, outcome, applied_at, actor, session_id, request_id, context
            from rule_applications
           where tenant_id = :tenant_id
      ) r
    union all
    select 8, 'event', to_jsonb(r), null, r.occurred_at, r.id::text
      from (
          select id, event_type, entity_type, entity_id, actor, request_id, payload, occurred_at
            from memory_events
           where tenant_id = :tenant_id
      ) r
)
select kind, record, embedding
  from everything
 order by place, at, key;

-- name: disable_idle_timeout()!
-- Lets the transaction be idle between two statements.
select set_config('idle_in_transaction_session_timeout', '0', true);

-- name: try_lock_import(tenant_id)$
-- Locks the tenant against other imports until the transaction ends; false while one runs.
select pg_try_advisory_xact_lock(hashtextextended(:tenant_id, 4));

-- name: has_records(tenant_id)$
-- Whether a tenant has any record; embedding versions alone do not count.
select exists (select from entities where tenant_id = :tenant_id)
    or exists (select from episodes where tenant_id = :tenant_id)
    or exists (select from facts where tenant_id = :tenant_id)
    or exists (select from rules where tenant_id = :tenant_id)
    or exists (select from memory_links where tenant_id = :tenant_id)
    or exists (select from rule_applications where tenant_id = :tenant_id)
    or exists (select from memory_events where tenant_id = :tenant_id);

-- name: find_key_conflict(tenant_id, records)^
-- A live fact among these whose key another live fact has.
select r.id, holder.id as holder_id
  from jsonb_to_recordset(:records::jsonb)
       as r (id uuid, scope text, subject text, predicate text, entity_id uuid, validity text)
  join facts holder
    on holder.tenant_id = :tenant_id
   and holder.scope = r.scope
   and holder.predicate = r.predicate
   and holder.validity = 'active'
   and holder.id <> r.id
   and (holder.entity_id = r.entity_id or (coalesce(holder.entity_id, r.entity_id) is null and holder.subject = r.subject))
 where r.validity in ('active', 'fading')
   and not exists (select from facts known where known.tenant_id = :tenant_id and known.id = r.id)
 order by r.id
 limit 1;

-- name: find_merged_entity(tenant_id, records)^
-- A new live fact among these whose entity was merged away.
select r.id, r.entity_id
  from jsonb_to_recordset(:records::jsonb) as r (id uuid, entity_id uuid, validity text)
  join entities e on e.tenant_id = :tenant_id and e.id = r.entity_id and e.metadata ? 'merged_into'
 where r.validity in ('active', 'fading')
   and not exists (select from facts known where known.tenant_id = :tenant_id and known.id = r.id)
 order by r.id
 limit 1;

-- name: insert_embedding_version(tenant_id, records)
-- Inserts embedding versions that are not there yet.
insert into embedding_versions (tenant_id, id, model, version, dimensions, created_at)
select :tenant_id, r.id, r.model, r.version, r.dimensions, r.created_at
  from jsonb_to_recordset(:records::jsonb)
       as r (id uuid, model text, version text, dimensions integer, created_at timestamptz)
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_entity(tenant_id, records)
-- Inserts entities that are not there yet.
insert into entities (
    tenant_id, id, canonical_name, entity_type, aliases, metadata, created_at, updated_at
)
select :tenant_id, r.id, r.canonical_name, r.entity_type, r.aliases, r.metadata, r.created_at, r.updated_at
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, canonical_name text, entity_type text, aliases text[], metadata jsonb,
           created_at timestamptz, updated_at timestamptz
       )
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_episode(tenant_id, records, ids, searchables, embeddings, version)
-- Inserts episodes that are not there yet.
insert into episodes (
    tenant_id, id, butler, session_id, content, search_vector, embedding, embedding_version_id, importance,
    reference_count, consolidation_status, consolidation_attempts, last_consolidation_error,
    next_consolidation_retry_at, created_at, last_referenced_at, expires_at, metadata
)
select :tenant_id, r.id, r.butler, r.session_id, r.content, to_tsvector('english', searchable.text),
       searchable.embedding, :version, r.importance, r.reference_count, r.consolidation_status,
       r.consolidation_attempts, r.last_consolidation_error, r.next_consolidation_retry_at, r.created_at,
       r.last_referenced_at, r.expires_at, r.metadata
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, butler text, session_id uuid, content text, importance double precision,
           reference_count integer, consolidation_status text, consolidation_attempts integer,
           last_consolidation_error text, next_consolidation_retry_at timestamptz, created_at timestamptz,
           last_referenced_at timestamptz, expires_at timestamptz, metadata jsonb
       )
  join unnest(:ids::uuid[], :searchables::text[], :embeddings::vector[]) as searchable (id, text, embedding)
    on searchable.id = r.id
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_fact(tenant_id, records, ids, searchables, embeddings, version)
-- Inserts facts that are not there yet.
insert into facts (
    tenant_id, id, subject, predicate, content, search_vector, embedding, embedding_version_id, importance,
    confidence, decay_rate, permanence, source_butler, source_episode_id, supersedes_id, entity_id, validity,
    scope, reference_count, created_at, last_referenced_at, last_confirmed_at, tags, metadata
)
select :tenant_id, r.id, r.subject, r.predicate, r.content, to_tsvector('english', searchable.text),
       searchable.embedding, :version, r.importance, r.confidence, r.decay_rate, r.permanence, r.source_butler,
       r.source_episode_id, r.supersedes_id, r.entity_id, r.validity, r.scope, r.reference_count, r.created_at,
       r.last_referenced_at, r.last_confirmed_at, r.tags, r.metadata
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, subject text, predicate text, content text, importance double precision,
           confidence double precision, decay_rate double precision, permanence text, source_butler text,
           source_episode_id uuid, supersedes_id uuid, entity_id uuid, validity text, scope text,
           reference_count integer, created_at timestamptz, last_referenced_at timestamptz,
           last_confirmed_at timestamptz, tags jsonb, metadata jsonb
       )
  join unnest(:ids::uuid[], :searchables::text[], :embeddings::vector[]) as searchable (id, text, embedding)
    on searchable.id = r.id
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_rule(tenant_id, records, ids, searchables, embeddings, version)
-- Inserts rules that are not there yet.
insert into rules (
    tenant_id, id, content, search_vector, embedding, embedding_version_id, scope, maturity, confidence,
    decay_rate, permanence, effectiveness_score, applied_count, success_count, harmful_count,
    source_episode_id, source_butler, created_at, last_applied_at, last_evaluated_at, last_confirmed_at,
    reference_count, last_referenced_at, tags, metadata
)
select :tenant_id, r.id, r.content, to_tsvector('english', searchable.text), searchable.embedding, :version, r.scope,
       r.maturity, r.confidence, r.decay_rate, r.permanence, r.effectiveness_score, r.applied_count,
       r.success_count, r.harmful_count, r.source_episode_id, r.source_butler, r.created_at, r.last_applied_at,
       r.last_evaluated_at, r.last_confirmed_at, r.reference_count, r.last_referenced_at, r.tags, r.metadata
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, content text, scope text, maturity text, confidence double precision,
           decay_rate double precision, permanence text, effectiveness_score double precision,
           applied_count integer, success_count integer, harmful_count integer, source_episode_id uuid,
           source_butler text, created_at timestamptz, last_applied_at timestamptz,
           last_evaluated_at timestamptz, last_confirmed_at timestamptz, reference_count integer,
           last_referenced_at timestamptz, tags jsonb, metadata jsonb
       )
  join unnest(:ids::uuid[], :searchables::text[], :embeddings::vector[]) as searchable (id, text, embedding)
    on searchable.id = r.id
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_link(tenant_id, records)
-- Inserts links that are not there yet.
insert into memory_links (tenant_id, source_type, source_id, target_type, target_id, relation, created_at)
select :tenant_id, r.source_type, r.source_id, r.target_type, r.target_id, r.relation, r.created_at
  from jsonb_to_recordset(:records::jsonb) as r (
           source_type text, source_id uuid, target_type text, target_id uuid, relation text,
           created_at timestamptz
       )
on conflict do nothing
returning source_id as id;

-- name: insert_rule_application(tenant_id, records)
-- Inserts rule applications that are not there yet.
insert into rule_applications (
    tenant_id, id, rule_id, outcome, applied_at, actor, session_id, request_id, context
)
select :tenant_id, r.id, r.rule_id, r.outcome, r.applied_at, r.actor, r.session_id, r.request_id, r.context
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, rule_id uuid, outcome text, applied_at timestamptz, actor text, session_id uuid,
           request_id text, context jsonb
       )
on conflict (tenant_id, id) do nothing
returning id;

-- name: insert_event(tenant_id, records)
-- Inserts events that are not there yet.
insert into memory_events (
    tenant_id, id, event_type, entity_type, entity_id, actor, request_id, payload, occurred_at
)
select :tenant_id, r.id, r.event_type, r.entity_type, r.entity_id, r.actor, r.request_id, r.payload,
       r.occurred_at
  from jsonb_to_recordset(:records::jsonb) as r (
           id uuid, event_type text, entity_type text, entity_id uuid, actor text, request_id text,
           payload jsonb, occurred_at timestamptz
       )
on conflict (tenant_id, id) do nothing
returning id;

-- name: write_supersedes(tenant_id, ids, superseded)!
-- Names the facts that facts superseded, where those came later in the file.
update facts
   set supersedes_id = superseding.superseded
  from unnest(:ids::uuid[], :superseded::uuid[]) as superseding (id, superseded)
 where facts.tenant_id = :tenant_id
   and facts.id = superseding.id;
