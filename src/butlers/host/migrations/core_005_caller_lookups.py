"""Lookups of callers that name their columns.

`api_key()` and `browser_session()` stay for butlers of the release before; a revision of the next release drops them.
"""

from alembic import op

from butlers.migrate import run_sql_file

revision = "core_005"
down_revision = "core_004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "caller_lookups")


def downgrade() -> None:
    op.execute("drop function find_api_key(uuid)")
    op.execute("drop function find_browser_session(bytea)")
