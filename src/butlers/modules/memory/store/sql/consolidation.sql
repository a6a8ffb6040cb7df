-- name: groups_of_all_tenants(max_rows)
-- The butlers with pending episodes, in all tenants, the closest to expiry first.
select tenant_id as tenant, butler, pending, retries, oldest
  from consolidation_groups(:max_rows);

-- name: groups(tenant_id, max_rows)
-- The butlers with pending episodes in one tenant, the closest to expiry first.
select tenant_id as tenant, butler, count(*) as pending,
       count(*) filter (where consolidation_status = 'failed') as retries, min(created_at) as oldest
  from claimable_episodes
 where tenant_id = :tenant_id
 group by tenant_id, butler
 order by min(expires_at), min(created_at), butler
 limit :max_rows;

-- name: lock_group(tenant_id, butler)!
-- Lets one worker at a time look for work of one butler in one tenant.
select pg_advisory_xact_lock(hashtextextended(:tenant_id || chr(31) || :butler, 5));

-- name: is_taken(tenant_id, butler)$
-- Whether a worker has leased episodes of the group, or failed episodes wait for their retry. Those come first:
-- later knowledge must not be overtaken by earlier.
select exists (
    select
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and lease_token is not null
       and leased_until > now()
       and consolidation_status in ('pending', 'failed')
) or exists (
    select
      from episodes
     where tenant_id = :tenant_id
       and butler = :butler
       and consolidation_status = 'failed'
       and next_consolidation_retry_at > now()
       and (expires_at is null or expires_at > now())
);

-- name: claimable_episodes(tenant_id, butler, max_rows, max_characters)
-- The next pending episodes of a group, in the order they are claimed; contents cut after so many characters.
select id, left(content, :max_characters) as content, created_at as happened_at, importance, consolidation_attempts
  from claimable_episodes
 where tenant_id = :tenant_id
   and butler = :butler
 order by created_at, expires_at, id
 limit :max_rows;

-- name: claim(tenant_id, butler, token, lease_seconds, max_rows, max_characters)
-- Takes the next pending episodes of a group under a lease; contents are cut after so many characters.
with next as (
    select id
      from claimable_episodes
     where tenant_id = :tenant_id
       and butler = :butler
     order by created_at, expires_at, id
     limit :max_rows
       for update skip locked
), claimed as (
    update episodes e
       set lease_token = :token, leased_until = now() + make_interval(secs => :lease_seconds)
      from next
     where e.tenant_id = :tenant_id
       and e.id = next.id
    returning e.id, left(e.content, :max_characters) as content, e.created_at, e.expires_at, e.importance
)
select id, content, created_at as happened_at, importance from claimed order by created_at, expires_at, id;

-- name: renew_lease(tenant_id, token, lease_seconds)
-- Extends a lease.
update episodes
   set leased_until = now() + make_interval(secs => :lease_seconds)
 where tenant_id = :tenant_id
   and lease_token = :token
returning id;

-- name: release_lease(tenant_id, token, ids)!
-- Gives episodes back unchanged: these, or all of the lease.
update episodes
   set lease_token = null, leased_until = null
 where tenant_id = :tenant_id
   and lease_token = :token
   and (:ids::uuid[] is null or id = any (:ids));

-- name: lock_batch(tenant_id, ids, token)
-- Locks the episodes of a batch that still exist: whether the lease is still held, and whether they were forgotten
-- meanwhile.
select id, lease_token is not distinct from :token as is_leased, metadata ? 'forgotten_until' as is_forgotten
  from episodes
 where tenant_id = :tenant_id
   and id = any (:ids)
 order by id
   for update;

-- name: lock_facts(tenant_id, ids)
-- Locks facts that are to be updated or confirmed.
select id from facts where tenant_id = :tenant_id and id = any (:ids) order by id for update;

-- name: lock_rules(tenant_id, ids)
-- Locks rules that are to be confirmed.
select id from rules where tenant_id = :tenant_id and id = any (:ids) order by id for update;

-- name: mark_consolidated(tenant_id, token, ids)
-- Marks these episodes of a lease as consolidated.
update episodes
   set consolidation_status = 'consolidated', last_consolidation_error = null, next_consolidation_retry_at = null,
       lease_token = null, leased_until = null
 where tenant_id = :tenant_id
   and lease_token = :token
   and id = any (:ids)
   and consolidation_status in ('pending', 'failed')
returning id;

-- name: record_failure(tenant_id, token, error, max_attempts)
-- Counts a failed attempt at the episodes of a lease. All of them wait as long as the one with the most attempts;
-- each becomes a dead letter after its last attempt.
with attempted as (
    select max(consolidation_attempts) as attempts, 0.8 + 0.4 * random() as jitter
      from episodes
     where tenant_id = :tenant_id
       and lease_token = :token
)
update episodes e
   set consolidation_attempts = e.consolidation_attempts + 1,
       consolidation_status = case when e.consolidation_attempts + 1 >= :max_attempts then 'dead_letter' else 'failed' end,
       last_consolidation_error = :error,
       next_consolidation_retry_at = case
           when e.consolidation_attempts + 1 < :max_attempts
           then now() + least(interval '30 seconds' * 2 ^ least(attempted.attempts, 20), interval '1 hour') * attempted.jitter
       end,
       lease_token = null, leased_until = null
  from attempted
 where e.tenant_id = :tenant_id
   and e.lease_token = :token
   and e.consolidation_status in ('pending', 'failed')
returning e.id, e.consolidation_status as status, e.consolidation_attempts as attempts;

-- name: dead_letters(tenant_id, max_rows)
-- Episodes in dead letter, oldest first, each with the number of all.
select id, butler, content, created_at, expires_at, consolidation_attempts, last_consolidation_error,
       count(*) over () as total
  from episodes
 where tenant_id = :tenant_id
   and consolidation_status = 'dead_letter'
   and not metadata ? 'forgotten_until'
 order by created_at, id
 limit :max_rows;

-- name: requeue(tenant_id, ids, days)
-- Makes dead letters pending again, with no attempts and enough time to be consolidated.
update episodes
   set consolidation_status = 'pending', consolidation_attempts = 0, next_consolidation_retry_at = null,
       expires_at = greatest(expires_at, now() + make_interval(days => :days))
 where tenant_id = :tenant_id
   and consolidation_status = 'dead_letter'
   and not metadata ? 'forgotten_until'
   and (:ids::uuid[] is null or id = any (:ids))
returning id;

-- name: mark_lost_runs(tenant_id, butler)!
-- Marks the running runs of a group as lost; the caller holds the group, so no other worker runs one.
update consolidation_runs
   set status = 'lost', finished_at = now(), error = 'the worker ended without a result'
 where tenant_id = :tenant_id
   and butler = :butler
   and status = 'running';

-- name: begin_run(tenant_id, id, butler, token, episodes)!
-- Records a batch before a model is asked.
insert into consolidation_runs (tenant_id, id, butler, lease_token, episodes)
values (:tenant_id, :id, :butler, :token, :episodes);

-- name: book_prompt(tenant_id, id, input_tokens)!
-- Counts the estimated tokens of a batch's prompt when its session starts.
update consolidation_runs
   set input_tokens = :input_tokens, tokens_estimated = true
 where tenant_id = :tenant_id
   and id = :id
   and status = 'running';

-- name: finish_run(tenant_id, id, status, session_id, episodes, facts_created, facts_updated, rules_created, confirmed, proposed, known_left_out, errors, parse_errors, input_tokens, output_tokens, tokens_estimated, error)!
-- Records the result of a batch that is running, or was marked as lost.
update consolidation_runs
   set status = :status, finished_at = now(), session_id = :session_id, episodes = :episodes,
       facts_created = :facts_created, facts_updated = :facts_updated, rules_created = :rules_created,
       confirmed = :confirmed, proposed = :proposed, known_left_out = :known_left_out, errors = :errors,
       parse_errors = :parse_errors, input_tokens = :input_tokens, output_tokens = :output_tokens, tokens_estimated = :tokens_estimated, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status in ('running', 'lost');

-- name: tokens_last_day(tenant_id)$
-- The tokens of a tenant's batches in the last day.
select coalesce(sum(input_tokens + output_tokens), 0)::bigint
  from consolidation_runs
 where tenant_id = :tenant_id
   and started_at > now() - interval '1 day';

-- name: latest_run(tenant_id)^
-- The latest finished batch of a tenant.
select id, butler, status, started_at, finished_at, episodes, facts_created, facts_updated, rules_created, confirmed,
       jsonb_array_length(errors) + jsonb_array_length(parse_errors) as dropped, error
  from consolidation_runs
 where tenant_id = :tenant_id
   and status <> 'running'
 order by started_at desc, id
 limit 1;

-- name: nearest_to_episodes(tenant_id, memory_type, episode_ids, version, scopes, uses_graph, max_rows, max_characters)
-- The live facts or rules nearest to any of these episodes, the nearest first; contents cut after so many characters.
with nearest as (
    select n.id, max(n.similarity) as similarity
      from episodes e
     cross join lateral nearest_memories(
               :memory_type, :scopes, :uses_graph, true, 0, :max_rows, e.embedding, :version
           ) n
     where e.tenant_id = :tenant_id
       and e.id = any (:episode_ids)
       and e.embedding_version_id = :version
     group by n.id
     order by 2 desc
     limit :max_rows
)
select m.id, m.subject, m.predicate, left(m.content, :max_characters) as content, m.permanence, m.maturity, m.scope
  from nearest
  join memories m on m.tenant_id = :tenant_id and m.memory_type = :memory_type and m.id = nearest.id
 order by nearest.similarity desc, m.created_at desc, m.id;
