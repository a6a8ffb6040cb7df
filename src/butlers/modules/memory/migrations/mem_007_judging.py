"""Judging by people: the history of edits, events by request, and the indexes of lists and review piles."""

from alembic import op

from butlers.migrate import run_sql_file

revision = "mem_007"
down_revision = "mem_006"
branch_labels = None
depends_on = None

_INDEXES = (
    "memory_events_by_request",
    "memory_events_by_undone",
    "entities_live_by_creation",
    "rules_harmful",
    "facts_vital",
    "facts_distilled",
    "rules_distilled",
    "facts_by_time",
    "facts_by_permanence",
    "rules_by_time",
    "rules_by_maturity_and_time",
    "rules_awaiting_inversion",
    "episodes_by_time",
    "entities_merged",
)


def upgrade() -> None:
    run_sql_file(__file__, "judging")
    run_sql_file(__file__, "dashboard_lists")


def downgrade() -> None:
    op.execute("drop function find_events_of_session(text)")
    op.execute("drop function find_entity_twins(bigint, bigint)")
    op.execute("drop function list_entities_by_name(text, text, text, uuid, boolean, bigint)")
    op.execute("drop table edit_history")
    for index in _INDEXES:
        op.execute(f"drop index {index}")
