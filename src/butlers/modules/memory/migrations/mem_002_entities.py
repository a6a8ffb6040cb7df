"""Entities, facts keyed by them, and the resolution of names."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_002"
down_revision = "mem_001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    extensions = _extensions()
    run_sql_file(__file__, "normalized_name_unaccent" if "unaccent" in extensions else "normalized_name")
    run_sql_file(__file__, "entities")
    run_sql_file(__file__, "entity_similarity" if "pg_trgm" in extensions else "entity_similarity_missing")


def downgrade() -> None:
    for match in ("similarity", "part", "alias", "name"):
        op.execute(f"drop function find_entities_by_{match}(text, text, bigint)")
    op.execute("alter table facts drop column entity_id")
    op.execute("drop table entities")
    op.execute("drop function name_ngrams(text, text)")
    op.execute("drop function normalized_names(text, text[])")
    op.execute("drop function normalized_name(text)")


def _extensions() -> set[str]:
    """The extensions that are installed in the schema public."""
    installed = "select extname from pg_extension where extnamespace = 'public'::regnamespace"
    return set(op.get_bind().exec_driver_sql(installed).scalars())
