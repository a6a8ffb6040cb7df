-- Leases: work that one process at a time may do, without a lock that belongs to a connection.

create table leases (
    tenant_id text not null,
    name text not null,
    token uuid not null,
    expires_at timestamptz not null,
    constraint leases_pkey primary key (tenant_id, name),
    -- A key with the token makes taking a lease over conflict with FOR KEY SHARE, and renewing it not.
    constraint leases_token_key unique (tenant_id, name, token),
    constraint leases_tenant_named check (tenant_id <> ''),
    constraint leases_name_not_blank check (name ~ '\S')
);
select enable_tenant_isolation('leases', true);

comment on table leases is 'Who does a piece of work: a job, or the sessions of a process. All are in the tenant default.';
comment on column leases.token is 'Drawn by the holder; a transaction of the work checks it with require_lease().';
comment on column leases.expires_at is 'The holder renews it; afterwards any process may take the lease over.';
comment on column sessions.instance is 'The process that runs it; it holds a lease of this name while it lives.';

create function require_lease(wanted text, holder uuid) returns void
language plpgsql security definer set search_path = '' as $$
begin
    perform from public.leases l
      where l.tenant_id = 'default' and l.name = wanted and l.token = holder
        for key share;
    if not found then
        raise exception 'the lease was taken over' using errcode = 'BT001';
    end if;
end $$;
comment on function require_lease(text, uuid) is
    'Keeps others from taking the lease over until this transaction ends; raises BT001 where one has.';
