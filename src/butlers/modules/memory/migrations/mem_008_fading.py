"""Indexes by the time of the last confirmation: decay counts from there."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_008"
down_revision = "mem_007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("drop index facts_by_permanence, facts_vital")
    run_sql_file(__file__, "fading")


def downgrade() -> None:
    op.execute("drop index facts_by_confirmation, facts_vital_by_confirmation, rules_by_confirmation")
    op.execute(
        "create index facts_by_permanence on facts (tenant_id, permanence, created_at, id) where validity = 'active'"
    )
    op.execute(
        "create index facts_vital on facts (tenant_id, permanence, created_at, id)"
        " where validity = 'active' and importance >= 8"
    )
