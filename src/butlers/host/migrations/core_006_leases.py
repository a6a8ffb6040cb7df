"""Leases of jobs and of processes with sessions, in place of advisory locks."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_006"
down_revision = "core_005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "leases")


def downgrade() -> None:
    op.execute("drop function require_lease(text, uuid)")
    op.execute("drop table leases")
