"""Receipts of what sessions were told."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_010"
down_revision = "mem_009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "receipts")


def downgrade() -> None:
    op.execute("drop table session_receipt_lines")
    op.execute("drop table session_receipts")
