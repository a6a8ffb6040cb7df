-- Idempotency keys: the answer of a call, for when the call is sent again.

create table idempotency_keys (
    tenant_id text not null,
    key text not null,
    tool text not null,
    arguments_hash bytea not null,
    answer jsonb,
    created_at timestamptz not null default now(),
    constraint idempotency_keys_pkey primary key (tenant_id, key),
    constraint idempotency_keys_tenant_named check (tenant_id <> ''),
    constraint idempotency_keys_key_length check (length(key) between 1 and 200)
);
select enable_tenant_isolation('idempotency_keys');

create index idempotency_keys_by_age on idempotency_keys (tenant_id, created_at);

comment on table idempotency_keys is 'The answer to the first call with a key, for when it is sent again.';
comment on column idempotency_keys.arguments_hash is 'Tells a repeated call from another call with the same key.';
