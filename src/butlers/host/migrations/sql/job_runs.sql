-- Job runs: one row for each run of a scheduled job.

create table job_runs (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    job text not null,
    scheduled_for timestamptz,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    status text not null default 'running',
    attempt integer not null default 1,
    result jsonb not null default '{}',
    error text,
    constraint job_runs_pkey primary key (tenant_id, id),
    constraint job_runs_tenant_named check (tenant_id <> ''),
    constraint job_runs_job_not_blank check (job ~ '\S'),
    constraint job_runs_status_known check (status in ('running', 'succeeded', 'failed', 'lost')),
    constraint job_runs_attempt_counted check (attempt >= 1),
    constraint job_runs_result_object check (jsonb_typeof(result) = 'object')
);
select enable_tenant_isolation('job_runs');

create index job_runs_by_job on job_runs (tenant_id, job, started_at desc);

comment on table job_runs is 'One row for each run of a scheduled job.';
comment on column job_runs.scheduled_for is 'The time its cron expression named; null for a run by hand.';

create function latest_job_runs()
returns table (
    job text, scheduled_for timestamptz, started_at timestamptz, finished_at timestamptz, status text,
    attempt integer, result jsonb, error text, succeeded_at timestamptz
)
language sql stable security definer set search_path = '' as $$
    select distinct on (r.job)
           r.job, r.scheduled_for, r.started_at, r.finished_at, r.status, r.attempt, r.result, r.error,
           max(r.finished_at) filter (where r.status = 'succeeded') over (partition by r.job)
      from public.job_runs r
     order by r.job, r.started_at desc, r.id
$$;
comment on function latest_job_runs() is
    'The latest run and the latest success of each job, in all tenants.';
