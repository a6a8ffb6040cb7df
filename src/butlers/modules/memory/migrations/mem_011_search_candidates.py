"""Search in one statement: functions for the candidates of a question, and each vector at most twice on disk."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_011"
down_revision = "mem_010"
branch_labels = None
depends_on = None

_FUNCTIONS = ("search_candidates", "keyword_matches", "nearest_memories", "nearest_by_graph", "terms_query")


def upgrade() -> None:
    run_sql_file(__file__, "search_candidates")


def downgrade() -> None:
    for function in _FUNCTIONS:
        op.execute(f"drop function {function}")
    op.execute("drop index episodes_by_session_time")
    op.execute("create index episodes_by_session on episodes (tenant_id, session_id) where session_id is not null")
    for table, columns, condition in (
        ("facts", "created_at, embedding", " where validity = 'active'"),
        ("rules", "created_at, embedding", " where not coalesce((metadata -> 'forgotten')::boolean, false)"),
        ("episodes", "created_at, expires_at, embedding", ""),
    ):
        scope = "butler" if table == "episodes" else "scope"
        op.execute(
            f"create index {table}_exact on {table} (tenant_id, embedding_version_id, {scope})"
            f" include (id, {columns}){condition}"
        )
