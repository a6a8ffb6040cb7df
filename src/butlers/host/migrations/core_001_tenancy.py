"""Tenant isolation: `current_tenant()` and the policies of every table."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_001"
down_revision = None
branch_labels = ("core",)
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "tenancy")


def downgrade() -> None:
    op.execute("drop function enable_tenant_isolation(regclass, boolean)")
    op.execute("drop function current_tenant()")
