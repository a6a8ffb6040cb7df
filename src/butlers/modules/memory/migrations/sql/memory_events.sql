-- The audit trail: every change to a memory, append-only for every role.

create table memory_events (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    event_type text not null,
    entity_type text,
    entity_id uuid,
    actor text,
    request_id text,
    payload jsonb not null default '{}',
    occurred_at timestamptz not null default now(),
    created_at timestamptz not null generated always as (occurred_at) stored,
    constraint memory_events_pkey primary key (tenant_id, id),
    constraint memory_events_tenant_named check (tenant_id <> ''),
    constraint memory_events_event_type_not_blank check (event_type ~ '\S'),
    constraint memory_events_payload_object check (jsonb_typeof(payload) = 'object')
);
select enable_tenant_isolation('memory_events');

create index memory_events_by_time on memory_events (tenant_id, occurred_at desc);
create index memory_events_by_type on memory_events (tenant_id, event_type, occurred_at desc);
create index memory_events_by_entity on memory_events (tenant_id, entity_type, entity_id, occurred_at desc)
    where entity_id is not null;
create index memory_events_by_session on memory_events (tenant_id, (payload ->> 'session_id'))
    where payload ? 'session_id';
create index memory_events_by_retraction on memory_events (tenant_id, (payload ->> 'retraction'))
    where payload ? 'retraction';

comment on table memory_events is 'Every change to a memory, append-only.';
comment on column memory_events.entity_type is 'The type of memory the event is about.';
comment on column memory_events.payload is 'Ids, types and numbers; no content of memories.';
comment on column memory_events.created_at is 'Mirrors occurred_at.';

create function memory_events_refuse() returns trigger language plpgsql set search_path = '' as $$
begin
    raise exception 'memory_events is append-only, % is refused', tg_op using errcode = '42501';
end $$;
comment on function memory_events_refuse() is 'Refuses every change to the audit trail.';

create trigger memory_events_append_only before update or delete or truncate on memory_events
    for each statement execute function memory_events_refuse();
-- ALWAYS: the trigger also fires for a superuser with session_replication_role = replica.
alter table memory_events enable always trigger memory_events_append_only;
