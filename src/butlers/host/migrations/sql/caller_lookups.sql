-- Lookups of callers before their tenant is known. They name their columns: a column that a later release adds to a
-- table does not change what butlers of this release read.

create function find_api_key(wanted uuid)
returns table (
    tenant_id text, id uuid, actor text, roles text[], elevated boolean, secret_hash bytea, expires_at timestamptz,
    revoked_at timestamptz
)
language sql stable security definer rows 1 set search_path = '' as $$
    select k.tenant_id, k.id, k.actor, k.roles, k.elevated, k.secret_hash, k.expires_at, k.revoked_at
      from public.api_keys k
     where k.id = wanted
$$;
comment on function find_api_key(uuid) is 'The key with that id, in any tenant; no row where there is none.';

create function find_browser_session(wanted bytea)
returns table (
    tenant_id text, id uuid, is_ticket boolean, actor text, roles text[], elevated boolean, key_id uuid,
    last_seen_at timestamptz, expires_at timestamptz
)
language sql stable security definer rows 1 set search_path = '' as $$
    select s.tenant_id, s.id, s.is_ticket, s.actor, s.roles, s.elevated, s.key_id, s.last_seen_at, s.expires_at
      from public.browser_sessions s
     where s.token_hash = wanted
$$;
comment on function find_browser_session(bytea) is
    'The session with that token, in any tenant; no row where there is none.';

comment on table api_keys is 'Who may call over HTTP; the application reads it through find_api_key() only.';
comment on table browser_sessions is
    'Logins to the dashboard; the application finds one through find_browser_session().';
