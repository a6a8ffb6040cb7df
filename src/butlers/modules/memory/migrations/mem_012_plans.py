"""Words are looked up by their index, and in nothing else: also in a table the server has not looked at yet."""

from collections.abc import Mapping

from alembic import op

from butlers.modules.memory.migrations import mem_007_retrieval as before

revision = "mem_012"
down_revision = "mem_011"
branch_labels = None
depends_on = None

# The words have their tenant in front, so theirs is the only index that is needed. Any other the server would choose
# means taking the words of every memory of the tenant out of it, and a table that is still new to it looks too small
# for it to mind. And the plan is for just these words, also where the statement around them keeps its own.
_WORDS = (
    before.WORDS.replace("create function", "create or replace function")
    .replace("m.tenant_id = (select current_tenant())", "m.tenant_id || '' = (select current_tenant())")
    .replace(
        "set search_path = public, pg_catalog",
        "set search_path = public, pg_catalog set plan_cache_mode = force_custom_plan set enable_seqscan = off",
    )
)


def words(arm: Mapping[str, str]) -> str:
    """The statement that makes an arm's function, or makes it anew."""
    live = arm["live"].replace("m.validity =", "m.validity || '' =")
    return _WORDS.format(**{**arm, "live": live})


def upgrade() -> None:
    for arm in before.ARMS:
        op.execute(words(arm))
        # What is stored stands in the index at once, and not on a list that every search reads from end to end.
        op.execute(f"alter index {arm['table']}_words set (fastupdate = off)")
        op.execute(f"select gin_clean_pending_list('{arm['table']}_words')")


def downgrade() -> None:
    for arm in before.ARMS:
        op.execute(f"alter index {arm['table']}_words reset (fastupdate)")
        op.execute(before.WORDS.replace("create function", "create or replace function").format(**arm))
