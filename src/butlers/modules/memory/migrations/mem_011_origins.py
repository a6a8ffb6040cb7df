"""Where memories come from: what a session made, and what came of its episodes."""

from alembic import op

revision = "mem_011"
down_revision = "mem_010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # On the trail and not on the memories: it is written once, and no change of a memory has to keep it up to date.
    op.execute("""
        create index memory_events_by_session on memory_events (tenant_id, (payload ->> 'session_id'))
        where payload ? 'session_id'
    """)
    op.execute("""
        create index memory_events_by_retraction on memory_events (tenant_id, (payload ->> 'retraction'))
        where payload ? 'retraction'
    """)
    op.execute("""
        create index episodes_by_session on episodes (tenant_id, session_id) where session_id is not null
    """)


def downgrade() -> None:
    op.execute("drop index episodes_by_session")
    op.execute("drop index memory_events_by_retraction")
    op.execute("drop index memory_events_by_session")
