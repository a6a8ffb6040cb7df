"""Work: sessions of the butler's runtime, and runs of its jobs."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_003"
down_revision = "core_002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "sessions")
    run_sql_file(__file__, "job_runs")


def downgrade() -> None:
    op.execute("drop function unfinished_sessions(text)")
    op.execute("drop function latest_job_runs()")
    op.execute("drop table sessions, job_runs")
