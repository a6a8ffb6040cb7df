"""Search: the view over all memories, the indexes of both arms, and the keyword arm."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_004"
down_revision = "mem_003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "search")


def downgrade() -> None:
    op.execute("drop function keyword_candidates")
    op.execute("drop view memories")
    for table in ("facts", "rules", "episodes"):
        op.execute(f"drop index {table}_terms, {table}_exact")
