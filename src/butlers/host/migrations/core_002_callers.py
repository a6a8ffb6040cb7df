"""Callers: API keys, and the idempotency keys of their calls."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_002"
down_revision = "core_001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "api_keys")
    run_sql_file(__file__, "idempotency_keys")


def downgrade() -> None:
    op.execute("drop function api_key(uuid)")
    op.execute("drop table api_keys, idempotency_keys")
