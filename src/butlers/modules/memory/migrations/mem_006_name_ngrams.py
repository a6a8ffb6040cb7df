"""N-grams of entity names in time linear to their length."""

from butlers.migrate import run_sql_file

revision = "mem_006"
down_revision = "mem_005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_sql_file(__file__, "name_ngrams")


def downgrade() -> None:
    # Both definitions return the same n-grams, so the index and the rows fit either.
    pass
