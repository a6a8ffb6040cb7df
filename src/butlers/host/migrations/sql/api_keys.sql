-- API keys: the callers of a butler with auth.mode = "keys".

create table api_keys (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    actor text not null,
    roles text[] not null default '{}',
    elevated boolean not null default false,
    secret_hash bytea not null,
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint api_keys_pkey primary key (tenant_id, id),
    constraint api_keys_tenant_named check (tenant_id <> ''),
    constraint api_keys_secret_hash_length check (octet_length(secret_hash) = 32)
);
-- `butlers key` runs as the owner and administers the keys of every tenant.
select enable_tenant_isolation('api_keys', owner_writes => true);

-- The one lookup that does not know its tenant: the key tells which tenant the caller has.
create index api_keys_by_id on api_keys (id);

comment on table api_keys is 'Who may call over HTTP; the application reads it through api_key() only.';
comment on column api_keys.secret_hash is 'SHA-256 of the secret; the secret itself is not stored.';
comment on column api_keys.elevated is 'Together with the role admin: may act inside other tenants.';

create function api_key(wanted uuid) returns setof api_keys
language sql stable security definer rows 1 set search_path = ''
as $$ select * from public.api_keys where id = wanted $$;
comment on function api_key(uuid) is 'The key with that id, in any tenant; no row where there is none.';
