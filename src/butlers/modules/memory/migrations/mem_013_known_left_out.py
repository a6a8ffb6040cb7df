"""The number of known memories that a consolidation prompt left out."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_013"
down_revision = "mem_012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "known_left_out")


def downgrade() -> None:
    op.execute("alter table consolidation_runs drop column known_left_out")
