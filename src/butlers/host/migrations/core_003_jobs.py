"""The latest run of each job, for whoever asks how the butler is."""

from alembic import op

revision = "core_003"
down_revision = "core_002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        create function latest_job_runs()
        returns table (
            job text, scheduled_for timestamptz, started_at timestamptz, finished_at timestamptz, status text,
            attempt integer, result jsonb, error text, succeeded_at timestamptz
        )
        language sql stable security definer set search_path = '' as $$
            select distinct on (r.job)
                   r.job, r.scheduled_for, r.started_at, r.finished_at, r.status, r.attempt, r.result, r.error,
                   max(r.finished_at) filter (where r.status = 'succeeded') over (partition by r.job)
              from public.job_runs r
             order by r.job, r.started_at desc, r.id
        $$
    """)
    op.execute("""
        comment on function latest_job_runs() is
        'How each job ran last, and when it last succeeded, whichever tenant the butler that ran it belongs to.'
    """)


def downgrade() -> None:
    op.execute("drop function latest_job_runs()")
