"""The baseline: embedding versions, episodes, facts, rules and the links between them."""

import logging

from alembic import op
from sqlalchemy.exc import DBAPIError

from butlers.migrate import MigrationFault, as_connecting_role, run_sql_file

revision = "mem_001"
down_revision = None
branch_labels = ("memory",)
depends_on = "core_001"

MIN_PGVECTOR = (0, 7)
log = logging.getLogger("butlers.migrate")


def upgrade() -> None:
    _create_extensions()
    for part in ("functions", "embedding_versions", "episodes", "facts", "rules", "memory_links"):
        run_sql_file(__file__, part)


def downgrade() -> None:
    """Drop everything but the extensions: they may have been there before, and others may use them."""
    op.execute("drop table memory_links, rule_applications, rules, facts, episodes, embedding_versions")
    op.execute("drop function facts_normalize_validity()")
    op.execute("drop function any_term_query(text)")
    op.execute("drop function term_query(text)")
    op.execute("drop function tenant_terms(text, text[])")
    op.execute("drop function effective_confidence(double precision, double precision, timestamptz, timestamptz)")


def _create_extensions() -> None:
    with as_connecting_role(op.get_bind()):
        _require_vector()
        missing = [name for name in ("uuid-ossp", "pg_trgm", "unaccent") if not _create_extension(name)]
    if missing:
        log.info("going on without extensions this server or role can't create: %s", ", ".join(missing))


def _require_vector() -> None:
    if not _create_extension("vector"):
        raise MigrationFault(
            "mem_001 needs the extension vector, and it can't be created here",
            hint="Ask the server's administrator to install pgvector and to run: CREATE EXTENSION vector;",
        )
    version, schema = (
        op.get_bind()
        .exec_driver_sql("""
            select e.extversion, n.nspname
              from pg_extension e
              join pg_namespace n on n.oid = e.extnamespace
             where e.extname = 'vector'
        """)
        .one()
    )
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_PGVECTOR:
        raise MigrationFault(
            f"mem_001 needs pgvector 0.7 or newer, and this database has {version}",
            hint="Install a newer pgvector and run: ALTER EXTENSION vector UPDATE;",
        )
    if schema != "public":
        raise MigrationFault(
            f"mem_001 needs the extension vector in the schema public, and it is in {schema}",
            hint="Run: ALTER EXTENSION vector SET SCHEMA public;",
        )


def _create_extension(name: str) -> bool:
    """Whether the extension exists now; a failed attempt leaves the transaction usable."""
    connection = op.get_bind()
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f'create extension if not exists "{name}" with schema public')
    except DBAPIError:
        return False
    return True
