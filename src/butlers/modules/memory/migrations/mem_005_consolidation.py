"""Consolidation runs, and the functions that find pending work in all tenants."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_005"
down_revision = "mem_004"
branch_labels = None
depends_on = "core_002"


def upgrade() -> None:
    run_sql_file(__file__, "consolidation")


def downgrade() -> None:
    op.execute("drop function memory_tenants()")
    op.execute("drop function memory_backlog()")
    op.execute("drop function consolidation_groups(bigint)")
    op.execute("drop view claimable_episodes")
    op.execute("drop table consolidation_runs")
