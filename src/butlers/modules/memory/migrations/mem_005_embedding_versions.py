"""Which model made which vector."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "mem_005"
down_revision = "mem_004"
branch_labels = None
depends_on = None

EMBEDDED = ("episodes", "facts", "rules")


def upgrade() -> None:
    op.execute(r"""
        create table embedding_versions (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            model text not null,
            version text not null,
            dimensions integer not null,
            created_at timestamptz not null default now(),
            constraint embedding_versions_pkey primary key (tenant_id, id),
            constraint embedding_versions_name_key unique (tenant_id, model, version),
            constraint embedding_versions_tenant_named check (tenant_id <> ''),
            constraint embedding_versions_model_not_blank check (model ~ '\S'),
            constraint embedding_versions_version_not_blank check (version ~ '\S'),
            constraint embedding_versions_dimensions_counted check (dimensions > 0)
        )
    """)
    for statement in tenant_policies("embedding_versions"):
        op.execute(statement)
    op.execute("comment on table embedding_versions is 'Every model and version that ever made a vector here.'")
    for table in EMBEDDED:
        _name_version(table)


def downgrade() -> None:
    for table in reversed(EMBEDDED):
        op.execute(f"drop index {table}_by_embedding_version")
        op.execute(f"alter table {table} drop constraint {table}_embedding_version_fkey")
        op.execute(f"alter table {table} drop column embedding_version_id")
    op.execute("drop table embedding_versions")


def _name_version(table: str) -> None:
    op.execute(f"alter table {table} add column embedding_version_id uuid")
    op.execute(f"""
        alter table {table} add constraint {table}_embedding_version_fkey
        foreign key (tenant_id, embedding_version_id) references embedding_versions (tenant_id, id)
    """)
    op.execute(f"""
        create index {table}_by_embedding_version on {table} (tenant_id, embedding_version_id)
        where embedding_version_id is not null
    """)
    op.execute(f"""
        comment on column {table}.embedding_version_id is
        'What made the vector; a search never compares vectors of different versions.'
    """)
