"""Leases for consolidation, and what is still to be consolidated."""

from alembic import op

revision = "mem_006"
down_revision = "mem_005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table episodes add column lease_token uuid")
    op.execute("alter table episodes add column leased_until timestamptz")
    op.execute("""
        create index episodes_dead_letter on episodes (tenant_id, butler)
        where consolidation_status = 'dead_letter'
    """)
    op.execute("""
        comment on column episodes.lease_token is
        'Of the worker that has it; a result is written only by the holder of the same token.'
    """)
    op.execute("comment on column episodes.leased_until is 'After this another worker may take it.'")
    _backlog()


def downgrade() -> None:
    op.execute("drop function memory_backlog()")
    op.execute("drop index episodes_dead_letter")
    op.execute("alter table episodes drop column leased_until")
    op.execute("alter table episodes drop column lease_token")


def _backlog() -> None:
    # Three subqueries and not one scan: each of them reads a partial index and none of the rows.
    op.execute("""
        create function memory_backlog(
            out pending bigint, out oldest_pending timestamptz, out dead_letter bigint
        )
        language sql stable security definer set search_path = '' as $$
            select (select count(*) from public.episodes where consolidation_status = 'pending'),
                   (select min(created_at) from public.episodes where consolidation_status = 'pending'),
                   (select count(*) from public.episodes where consolidation_status = 'dead_letter')
        $$
    """)
    op.execute("""
        comment on function memory_backlog() is
        'How much waits to be consolidated, counted over all tenants; counts only.'
    """)
