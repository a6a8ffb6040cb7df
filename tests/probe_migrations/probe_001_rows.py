"""Table of the probe's rows."""

from alembic import op

revision = "probe_001"
down_revision = None
branch_labels = ("probe",)
depends_on = "core_001"


def upgrade() -> None:
    op.execute("create table probe_rows (tenant_id text not null, text text not null check (text <> ''))")
    op.execute("select enable_tenant_isolation('probe_rows')")


def downgrade() -> None:
    op.execute("drop table probe_rows")
