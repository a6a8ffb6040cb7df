"""Rate budgets, from which all processes of a butler lease the calls of a tenant."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_007"
down_revision = "core_006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "rate_budgets")


def downgrade() -> None:
    op.execute("drop function lease_calls(text, double precision, double precision, double precision)")
    op.execute("drop table rate_budgets")
