"""The next release of butlers: a copy of this one with a revision more on each branch."""

import shutil
from pathlib import Path

from butlers.host.migrations import CORE
from butlers.migrate import Branch
from butlers.modules.memory.migrations import MEMORY

SOURCE = Path(__file__).parents[2] / "src" / "butlers"
# Every kind of addition that the rule allows, on tables that an older butler reads and writes.
_CORE = """
alter table api_keys add column note text;
alter table browser_sessions add column device text;
alter table sessions add column cost double precision;
alter table job_runs add column host text not null default 'here';
alter table idempotency_keys add column seen integer not null default 0;
"""
_MEMORY = """
alter table facts add column origin text;
alter table rules add column origin text not null default 'unknown';
alter table episodes add column origin text;
alter table entities add column origin text;
create index facts_by_origin on facts (tenant_id, origin);
create table notes (tenant_id text not null, id uuid not null default gen_random_uuid(), primary key (tenant_id, id));
select enable_tenant_isolation('notes');
comment on table notes is 'Notes of the next release.';
"""


def write_next_release(at: Path) -> Path:
    """Write the next release and return the folder to put on PYTHONPATH."""
    shutil.copytree(SOURCE, at / "butlers", ignore=shutil.ignore_patterns("__pycache__"))
    for branch, sql in ((CORE, _CORE), (MEMORY, _MEMORY)):
        _add_revision(at / "butlers" / branch.location.relative_to(SOURCE), branch, sql)
    return at


def _add_revision(folder: Path, branch: Branch, sql: str) -> None:
    prefix, _, number = branch.head.rpartition("_")
    revision = f"{prefix}_{int(number) + 1:03}"
    (folder / f"{revision}_next.py").write_text(
        f'"""The next release."""\nfrom alembic import op\nfrom butlers.migrate import run_sql_file\n'
        f'revision = "{revision}"\ndown_revision = "{branch.head}"\nbranch_labels = None\ndepends_on = None\n'
        f'def upgrade() -> None:\n    run_sql_file(__file__, "next")\n'
    )
    (folder / "sql" / "next.sql").write_text(sql)
    package = folder / "__init__.py"
    package.write_text(package.read_text().replace(f'"{branch.head}"', f'"{revision}"'))
