-- Browser sessions: logins to the dashboard, and the one-time tickets that open them.

create table browser_sessions (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    token_hash bytea not null,
    is_ticket boolean not null default false,
    actor text not null,
    roles text[] not null default '{}',
    elevated boolean not null default false,
    key_id uuid,
    created_at timestamptz not null default now(),
    last_seen_at timestamptz not null default now(),
    expires_at timestamptz not null,
    constraint browser_sessions_pkey primary key (tenant_id, id),
    constraint browser_sessions_tenant_named check (tenant_id <> ''),
    constraint browser_sessions_token_hash_length check (octet_length(token_hash) = 32)
);
-- `butlers open` runs as the owner and makes tickets for any tenant.
select enable_tenant_isolation('browser_sessions', owner_writes => true);

create index browser_sessions_by_token on browser_sessions (token_hash);

comment on table browser_sessions is 'Logins to the dashboard; the application finds one through browser_session().';
comment on column browser_sessions.token_hash is 'SHA-256 of the cookie or ticket, which is not stored.';
comment on column browser_sessions.is_ticket is 'Whether it opens one session and then ends.';
comment on column browser_sessions.key_id is 'The API key it was opened with; each request looks that key up again.';

-- The lookup that does not know its tenant: the token tells which tenant the caller has.
create function browser_session(wanted bytea) returns setof browser_sessions
language sql stable security definer rows 1 set search_path = ''
as $$ select * from public.browser_sessions where token_hash = wanted $$;
comment on function browser_session(bytea) is 'The session with that token, in any tenant; no row where there is none.';
