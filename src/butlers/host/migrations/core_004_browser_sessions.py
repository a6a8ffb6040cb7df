"""Browser sessions: who is logged in to the dashboard."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_004"
down_revision = "core_003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "browser_sessions")


def downgrade() -> None:
    op.execute("drop function browser_session(bytea)")
    op.execute("drop table browser_sessions")
