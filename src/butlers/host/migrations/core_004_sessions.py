"""Sessions that wait their turn, say what they answered, and know which process runs them."""

from alembic import op

revision = "core_004"
down_revision = "core_003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table sessions add column answer text")
    op.execute("alter table sessions add column instance uuid")
    op.execute("alter table sessions drop constraint sessions_status_known")
    op.execute("""
        alter table sessions add constraint sessions_status_known
        check (status in ('waiting', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost'))
    """)
    op.execute("drop index sessions_running")
    op.execute("""
        create index sessions_unfinished on sessions (tenant_id, butler) where status in ('waiting', 'running')
    """)
    op.execute("comment on column sessions.answer is 'What it came to, as far as there is room.'")
    op.execute("""
        comment on column sessions.instance is
        'The process that runs it: it holds an advisory lock of this name for as long as it lives.'
    """)
    op.execute("""
        create function unfinished_sessions(of_butler text) returns table (tenant_id text, instance uuid)
        language sql stable security definer set search_path = '' as $$
            select distinct s.tenant_id, s.instance
              from public.sessions s
             where s.butler = of_butler
               and s.status in ('waiting', 'running')
        $$
    """)
    op.execute("""
        comment on function unfinished_sessions(text) is
        'Which processes have sessions of a butler under way, in which tenants; nothing of what they are about.'
    """)


def downgrade() -> None:
    op.execute("drop function unfinished_sessions(text)")
    op.execute("drop index sessions_unfinished")
    op.execute("create index sessions_running on sessions (tenant_id, butler) where status = 'running'")
    op.execute("alter table sessions drop constraint sessions_status_known")
    op.execute("""
        alter table sessions add constraint sessions_status_known
        check (status in ('running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')) not valid
    """)
    op.execute("alter table sessions drop column instance")
    op.execute("alter table sessions drop column answer")
