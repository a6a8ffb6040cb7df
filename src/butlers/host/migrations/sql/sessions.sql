-- Sessions: one row for each run of a butler's runtime.

create table sessions (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    butler text not null,
    trigger_source text not null,
    prompt text not null,
    runtime text not null,
    status text not null default 'running',
    internal boolean not null default false,
    actor text,
    request_id text,
    runtime_session_id text,
    usage jsonb not null default '{}',
    answer text,
    error text,
    instance uuid,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    constraint sessions_pkey primary key (tenant_id, id),
    constraint sessions_tenant_named check (tenant_id <> ''),
    constraint sessions_butler_not_blank check (butler ~ '\S'),
    constraint sessions_status_known
        check (status in ('waiting', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
    constraint sessions_usage_object check (jsonb_typeof(usage) = 'object')
);
select enable_tenant_isolation('sessions');

create index sessions_by_butler on sessions (tenant_id, butler, started_at desc);
create index sessions_unfinished on sessions (tenant_id, butler) where status in ('waiting', 'running');

comment on table sessions is 'One row for each run of a butler''s runtime.';
comment on column sessions.trigger_source is 'What started the session: a person, a schedule or a job.';
comment on column sessions.internal is 'Started by the system for itself; stores no episode.';
comment on column sessions.runtime_session_id is 'The runtime''s own id of the session, to find its logs.';
comment on column sessions.status is 'lost: its process ended without recording the outcome.';
comment on column sessions.answer is 'The answer, truncated to the maximum length.';
comment on column sessions.instance is 'The process that runs it; it holds an advisory lock of this name while it lives.';

create function unfinished_sessions(of_butler text) returns table (tenant_id text, instance uuid)
language sql stable security definer set search_path = '' as $$
    select distinct s.tenant_id, s.instance
      from public.sessions s
     where s.butler = of_butler
       and s.status in ('waiting', 'running')
$$;
comment on function unfinished_sessions(text) is
    'The processes and tenants with unfinished sessions of a butler; no content.';
