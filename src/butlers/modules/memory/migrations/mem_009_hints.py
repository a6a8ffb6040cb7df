"""Index of the live facts about a subject, for the hints of a store."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_009"
down_revision = "mem_008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "hints")


def downgrade() -> None:
    op.execute("drop index facts_live_by_subject")
