-- Background work: the record of consolidation runs, and the functions that find work in all tenants.

create table consolidation_runs (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    butler text not null,
    lease_token uuid not null,
    session_id uuid,
    status text not null default 'running',
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    episodes integer not null default 0,
    facts_created integer not null default 0,
    facts_updated integer not null default 0,
    rules_created integer not null default 0,
    confirmed integer not null default 0,
    errors jsonb not null default '[]',
    parse_errors jsonb not null default '[]',
    input_tokens bigint not null default 0,
    output_tokens bigint not null default 0,
    tokens_estimated boolean not null default false,
    error text,
    constraint consolidation_runs_pkey primary key (tenant_id, id),
    constraint consolidation_runs_tenant_named check (tenant_id <> ''),
    constraint consolidation_runs_butler_not_blank check (butler ~ '\S'),
    constraint consolidation_runs_status_known
        check (status in ('running', 'succeeded', 'failed', 'released', 'lost')),
    constraint consolidation_runs_counted check (
        least(episodes, facts_created, facts_updated, rules_created, confirmed) >= 0
        and least(input_tokens, output_tokens) >= 0
    ),
    constraint consolidation_runs_errors_array check (jsonb_typeof(errors) = 'array'),
    constraint consolidation_runs_parse_errors_array check (jsonb_typeof(parse_errors) = 'array')
);
select enable_tenant_isolation('consolidation_runs');

create index consolidation_runs_by_time on consolidation_runs (tenant_id, started_at desc);
create index consolidation_runs_running on consolidation_runs (tenant_id, butler) where status = 'running';

comment on table consolidation_runs is 'One row for each batch of episodes that a model was given.';
comment on column consolidation_runs.status is
    'released: the batch was given back and is pending again; lost: the worker ended without a result.';
comment on column consolidation_runs.errors is 'Actions that could not be applied, and why.';
comment on column consolidation_runs.parse_errors is 'Parts of the answer that were dropped, and why.';
comment on column consolidation_runs.tokens_estimated is
    'Whether the tokens were counted here because the runtime did not report them.';

-- SECURITY INVOKER: row-level security applies as it does to the table.
create view claimable_episodes with (security_invoker = true) as
select tenant_id, id, butler, content, importance, created_at, expires_at, consolidation_status,
       consolidation_attempts
  from episodes
 where consolidation_status in ('pending', 'failed')
   and (expires_at is null or expires_at > now())
   and (next_consolidation_retry_at is null or next_consolidation_retry_at <= now())
   and (leased_until is null or leased_until <= now());
comment on view claimable_episodes is 'Episodes that a consolidation worker may take now.';

create function consolidation_groups(max_groups bigint)
returns table (
    tenant_id text, butler text, pending bigint, retries bigint, oldest timestamptz, first_expiry timestamptz
)
language sql stable security definer set search_path = '' as $$
    select e.tenant_id, e.butler, count(*), count(*) filter (where e.consolidation_status = 'failed'),
           min(e.created_at), min(e.expires_at)
      from public.claimable_episodes e
     group by e.tenant_id, e.butler
     order by min(e.expires_at), min(e.created_at), e.tenant_id, e.butler
     limit max_groups
$$;
comment on function consolidation_groups(bigint) is
    'The butlers with pending episodes, in all tenants, the closest to expiry first; no content.';

-- One subquery for each status: each reads a partial index and none of the rows.
create function memory_backlog(
    out pending bigint, out failed bigint, out oldest_pending timestamptz, out dead_letter bigint
)
language sql stable security definer set search_path = '' as $$
    with pending as (
        select count(*) as episodes, min(e.created_at) as oldest
          from public.episodes e
         where e.consolidation_status = 'pending'
           and (e.expires_at is null or e.expires_at > now())
    ), failed as (
        select count(*) as episodes, min(e.created_at) as oldest
          from public.episodes e
         where e.consolidation_status = 'failed'
           and (e.expires_at is null or e.expires_at > now())
    )
    select pending.episodes, failed.episodes, least(pending.oldest, failed.oldest),
           (select count(*) from public.episodes where consolidation_status = 'dead_letter')
      from pending, failed
$$;
comment on function memory_backlog() is 'How many episodes are to be consolidated in all tenants; counts only.';

-- Loose index scans: each step goes from one tenant straight to the next and reads no row in between.
create function memory_tenants() returns table (tenant_id text)
language sql stable security definer set search_path = '' as $$
    with recursive of_episodes as (
        (select tenant_id from public.episodes order by tenant_id limit 1)
        union all
        select (select t.tenant_id from public.episodes t where t.tenant_id > s.tenant_id order by 1 limit 1)
          from of_episodes s
         where s.tenant_id is not null
    ), of_facts as (
        (select tenant_id from public.facts order by tenant_id limit 1)
        union all
        select (select t.tenant_id from public.facts t where t.tenant_id > s.tenant_id order by 1 limit 1)
          from of_facts s
         where s.tenant_id is not null
    ), of_rules as (
        (select tenant_id from public.rules order by tenant_id limit 1)
        union all
        select (select t.tenant_id from public.rules t where t.tenant_id > s.tenant_id order by 1 limit 1)
          from of_rules s
         where s.tenant_id is not null
    ), of_idempotency_keys as (
        (select tenant_id from public.idempotency_keys order by tenant_id limit 1)
        union all
        select (select t.tenant_id from public.idempotency_keys t where t.tenant_id > s.tenant_id order by 1 limit 1)
          from of_idempotency_keys s
         where s.tenant_id is not null
    )
    select tenant_id from of_episodes where tenant_id is not null
    union
    select tenant_id from of_facts where tenant_id is not null
    union
    select tenant_id from of_rules where tenant_id is not null
    union
    select tenant_id from of_idempotency_keys where tenant_id is not null
    order by 1
$$;
comment on function memory_tenants() is 'Every tenant with memories or stored answers; names only.';
