"""Proposals of consolidation that wait for a person."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_012"
down_revision = "mem_011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "proposals")


def downgrade() -> None:
    op.execute("alter table consolidation_runs drop column proposed")
    op.execute("drop table consolidation_proposals")
