"""The audit trail, append-only for every role."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_003"
down_revision = "mem_002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "memory_events")


def downgrade() -> None:
    op.execute("drop table memory_events")
    op.execute("drop function memory_events_refuse()")
