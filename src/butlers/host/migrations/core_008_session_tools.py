"""Tools that a session called."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_008"
down_revision = "core_007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "session_tools")


def downgrade() -> None:
    op.execute("drop index sessions_by_time")
    op.execute("alter table sessions drop column tools")
