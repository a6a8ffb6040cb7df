"""The baseline: embedding versions, episodes, facts, rules and the links between them."""

import logging

from alembic import op

from butlers.migrate import (
    MigrationFault,
    as_connecting_role,
    create_extension,
    refuse_old_extension,
    run_sql_file,
)
from butlers.modules.memory.migrations import MEMORY

revision = "mem_001"
down_revision = None
branch_labels = ("memory",)
depends_on = "core_001"

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
        reasons = {name: create_extension(op.get_bind(), name) for name in ("uuid-ossp", "pg_trgm", "unaccent")}
    if missing := [name for name, reason in reasons.items() if reason]:
        log.info("going on without extensions this server or role can't create: %s", ", ".join(missing))


def _require_vector() -> None:
    if reason := create_extension(op.get_bind(), "vector"):
        raise MigrationFault(
            f"mem_001 needs the extension vector, and it can't be created here: {reason}",
            hint="Ask the server's administrator to install pgvector and to run: CREATE EXTENSION vector;",
        )
    version, schema = (
        op.get_bind()
        .exec_driver_sql("""
            select extversion, extnamespace::regnamespace::text from pg_extension where extname = 'vector'
        """)
        .one()
    )
    refuse_old_extension("vector", version, MEMORY.extensions["vector"])
    if schema != "public":
        raise MigrationFault(
            f"mem_001 needs the extension vector in the schema public, and it is in {schema}",
            hint="Run: ALTER EXTENSION vector SET SCHEMA public;",
        )
