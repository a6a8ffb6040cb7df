"""The audit trail, append-only for everybody."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "mem_003"
down_revision = "mem_002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(r"""
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
        )
    """)
    op.execute("create index memory_events_by_time on memory_events (tenant_id, occurred_at desc)")
    op.execute("create index memory_events_by_type on memory_events (tenant_id, event_type, occurred_at desc)")
    op.execute("""
        create index memory_events_by_entity
        on memory_events (tenant_id, entity_type, entity_id, occurred_at desc)
        where entity_id is not null
    """)
    for statement in tenant_policies("memory_events"):
        op.execute(statement)
    _append_only()
    op.execute("comment on table memory_events is 'Every change to a memory, append-only.'")
    op.execute("comment on column memory_events.entity_type is 'The kind of memory the event is about.'")
    op.execute("comment on column memory_events.payload is 'Ids, types and numbers; no content of memories.'")
    op.execute("comment on column memory_events.created_at is 'Mirrors occurred_at.'")


def downgrade() -> None:
    op.execute("drop table memory_events")
    op.execute("drop function memory_events_refuse()")


def _append_only() -> None:
    op.execute("""
        create function memory_events_refuse() returns trigger language plpgsql set search_path = '' as $$
        begin
            raise exception 'memory_events is append-only, % is refused', tg_op using errcode = '42501';
        end $$
    """)
    op.execute("comment on function memory_events_refuse() is 'Keeps the audit trail as it was written.'")
    op.execute("""
        create trigger memory_events_append_only before update or delete or truncate on memory_events
        for each statement execute function memory_events_refuse()
    """)
    # ALWAYS: it fires for a superuser with session_replication_role = replica as well.
    op.execute("alter table memory_events enable always trigger memory_events_append_only")
