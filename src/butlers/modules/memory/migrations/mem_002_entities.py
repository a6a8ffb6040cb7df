"""Entities: who or what a fact is about, and facts keyed by them."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "mem_002"
down_revision = "mem_001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _entities()
    op.execute("alter table facts add column entity_id uuid")
    op.execute("""
        alter table facts add constraint facts_entity_fkey foreign key (tenant_id, entity_id)
        references entities (tenant_id, id) on delete restrict
    """)
    op.execute("create index facts_by_entity on facts (tenant_id, entity_id) where entity_id is not null")
    op.execute("drop index facts_active_key")
    op.execute("""
        create unique index facts_active_subject_key on facts (tenant_id, scope, subject, predicate)
        where entity_id is null and validity = 'active'
    """)
    op.execute("""
        create unique index facts_active_entity_key on facts (tenant_id, entity_id, scope, predicate)
        where entity_id is not null and validity = 'active'
    """)
    op.execute("""
        comment on column facts.entity_id is 'Whom it is about; then the entity keys it, and not the subject.'
    """)


def downgrade() -> None:
    """Fails where two entities share a subject: without entities only one of those facts could be active."""
    op.execute("drop index facts_active_entity_key")
    op.execute("drop index facts_active_subject_key")
    op.execute("""
        create unique index facts_active_key on facts (tenant_id, scope, subject, predicate)
        where validity = 'active'
    """)
    op.execute("drop index facts_by_entity")
    op.execute("alter table facts drop constraint facts_entity_fkey")
    op.execute("alter table facts drop column entity_id")
    op.execute("drop table entities")


def _entities() -> None:
    op.execute(r"""
        create table entities (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            canonical_name varchar not null,
            entity_type varchar not null,
            aliases text[] not null default '{}',
            metadata jsonb not null default '{}',
            created_at timestamptz not null default now(),
            updated_at timestamptz not null default now(),
            constraint entities_pkey primary key (tenant_id, id),
            constraint entities_name_key unique (tenant_id, canonical_name, entity_type),
            constraint entities_tenant_named check (tenant_id <> ''),
            constraint entities_canonical_name_not_blank check (canonical_name ~ '\S'),
            constraint entities_entity_type_known
                check (entity_type in ('person', 'organization', 'place', 'other')),
            constraint entities_metadata_object check (jsonb_typeof(metadata) = 'object')
        )
    """)
    op.execute("""
        create unique index entities_live_name_key on entities (tenant_id, lower(canonical_name), entity_type)
        where not (metadata ? 'merged_into')
    """)
    op.execute("create index entities_by_name on entities (tenant_id, canonical_name)")
    op.execute("create index entities_aliases on entities using gin (aliases)")
    op.execute("create index entities_metadata on entities using gin (metadata)")
    for statement in tenant_policies("entities"):
        op.execute(statement)
    op.execute("comment on table entities is 'The people, organizations and places that facts are about.'")
    op.execute("""
        comment on column entities.metadata is 'merged_into: the entity that took this one over.'
    """)
