"""Episodes, facts, rules and the links between them."""

import logging

from alembic import op
from sqlalchemy.exc import DBAPIError

from butlers.migrate import MigrationFault, as_connecting_role, tenant_policies

revision = "mem_001"
down_revision = None
branch_labels = ("memory",)
depends_on = "core_001"

TABLES = ("episodes", "facts", "rules", "memory_links")
OLDEST_PGVECTOR = (0, 7)
log = logging.getLogger("butlers.migrate")


def upgrade() -> None:
    _extensions()
    _episodes()
    _facts()
    _rules()
    _memory_links()
    for table in TABLES:
        for statement in tenant_policies(table):
            op.execute(statement)


def downgrade() -> None:
    """The extensions stay: they may have been there before, and others may use them."""
    for table in reversed(TABLES):
        op.execute(f"drop table {table}")
    op.execute("drop function facts_normalise()")


def _extensions() -> None:
    connection = op.get_bind()
    with as_connecting_role(connection):
        _require_vector()
        missing = [name for name in ("uuid-ossp", "pg_trgm", "unaccent") if not _created(name)]
    if missing:
        log.info("going on without extensions this server or role can't create: %s", ", ".join(missing))


def _require_vector() -> None:
    if not _created("vector"):
        raise MigrationFault(
            "mem_001 needs the extension vector, and it can't be created here",
            hint="Ask the server's administrator to install pgvector and to run: CREATE EXTENSION vector;",
        )
    version, schema = (
        op.get_bind()
        .exec_driver_sql("""
        select e.extversion, n.nspname from pg_extension e join pg_namespace n on n.oid = e.extnamespace
        where e.extname = 'vector'
    """)
        .one()
    )
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PGVECTOR:
        raise MigrationFault(
            f"mem_001 needs pgvector 0.7 or newer, and this database has {version}",
            hint="Install a newer pgvector and run: ALTER EXTENSION vector UPDATE;",
        )
    if schema != "public":
        raise MigrationFault(
            f"mem_001 needs the extension vector in the schema public, and it is in {schema}",
            hint="Run: ALTER EXTENSION vector SET SCHEMA public;",
        )


def _created(extension: str) -> bool:
    """Whether the extension is there now; a failed attempt leaves the transaction usable."""
    connection = op.get_bind()
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f'create extension if not exists "{extension}" with schema public')
    except DBAPIError:
        return False
    return True


def _episodes() -> None:
    op.execute(r"""
        create table episodes (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            butler text not null,
            session_id uuid,
            content text not null,
            embedding vector(384),
            search_vector tsvector,
            importance double precision not null default 5.0,
            reference_count integer not null default 0,
            consolidation_status varchar(20) not null default 'pending',
            consolidated boolean not null generated always as (consolidation_status = 'consolidated') stored,
            consolidation_attempts integer not null default 0,
            retry_count integer not null generated always as (consolidation_attempts) stored,
            last_consolidation_error text,
            last_error text generated always as (last_consolidation_error) stored,
            next_consolidation_retry_at timestamptz,
            created_at timestamptz not null default now(),
            last_referenced_at timestamptz,
            expires_at timestamptz default now() + interval '7 days',
            metadata jsonb not null default '{}',
            constraint episodes_pkey primary key (tenant_id, id),
            constraint episodes_tenant_named check (tenant_id <> ''),
            constraint episodes_butler_not_blank check (butler ~ '\S'),
            constraint episodes_content_not_blank check (content ~ '\S'),
            constraint episodes_embedding_has_direction check (vector_norm(embedding) > 0),
            constraint episodes_importance_range check (importance between 0 and 10),
            constraint episodes_reference_count_counted check (reference_count >= 0),
            constraint episodes_consolidation_status_known
                check (consolidation_status in ('pending', 'consolidated', 'failed', 'dead_letter')),
            constraint episodes_consolidation_attempts_counted check (consolidation_attempts >= 0),
            constraint episodes_metadata_object check (jsonb_typeof(metadata) = 'object')
        ) with (fillfactor = 85)
    """)
    op.execute("create index episodes_by_butler on episodes (tenant_id, butler, created_at desc)")
    op.execute("create index episodes_by_expiry on episodes (tenant_id, expires_at) where expires_at is not null")
    op.execute("""
        create index episodes_pending on episodes (tenant_id, butler, created_at)
        where consolidation_status = 'pending'
    """)
    op.execute("create index episodes_search on episodes using gin (search_vector)")
    op.execute("""
        create index episodes_embedding on episodes
        using ivfflat (embedding vector_cosine_ops) with (lists = 20)
    """)
    op.execute("comment on table episodes is 'Raw observations from sessions, short-lived.'")
    op.execute("""
        comment on column episodes.consolidation_status is
        'pending until it has been consolidated; dead_letter after the last failed attempt.'
    """)
    op.execute("comment on column episodes.consolidated is 'Mirrors consolidation_status.'")
    op.execute("comment on column episodes.retry_count is 'Mirrors consolidation_attempts.'")
    op.execute("comment on column episodes.last_error is 'Mirrors last_consolidation_error.'")
    op.execute("comment on column episodes.expires_at is 'Cleanup deletes it after this; null keeps it.'")


def _facts() -> None:
    op.execute(r"""
        create table facts (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            subject text not null,
            predicate text not null,
            content text not null,
            embedding vector(384),
            search_vector tsvector,
            importance double precision not null default 5.0,
            confidence double precision not null default 1.0,
            decay_rate double precision not null default 0.008,
            permanence text not null default 'standard',
            source_butler text,
            source_episode_id uuid,
            supersedes_id uuid,
            validity text not null default 'active',
            scope text not null default 'global',
            reference_count integer not null default 0,
            created_at timestamptz not null default now(),
            last_referenced_at timestamptz default now(),
            last_confirmed_at timestamptz default now(),
            tags jsonb not null default '[]',
            metadata jsonb not null default '{}',
            constraint facts_pkey primary key (tenant_id, id),
            constraint facts_source_episode_fkey foreign key (tenant_id, source_episode_id)
                references episodes (tenant_id, id) on delete set null (source_episode_id),
            constraint facts_supersedes_fkey foreign key (tenant_id, supersedes_id)
                references facts (tenant_id, id) on delete set null (supersedes_id),
            constraint facts_tenant_named check (tenant_id <> ''),
            constraint facts_subject_not_blank check (subject ~ '\S'),
            constraint facts_predicate_not_blank check (predicate ~ '\S'),
            constraint facts_content_not_blank check (content ~ '\S'),
            constraint facts_scope_not_blank check (scope ~ '\S'),
            constraint facts_embedding_has_direction check (vector_norm(embedding) > 0),
            constraint facts_importance_range check (importance between 0 and 10),
            constraint facts_confidence_range check (confidence between 0 and 1),
            constraint facts_decay_rate_range check (decay_rate >= 0 and decay_rate < 'infinity'),
            constraint facts_permanence_known
                check (permanence in ('permanent', 'stable', 'standard', 'volatile', 'ephemeral')),
            constraint facts_validity_known
                check (validity in ('active', 'fading', 'superseded', 'expired', 'retracted')),
            constraint facts_reference_count_counted check (reference_count >= 0),
            constraint facts_tags_array check (jsonb_typeof(tags) = 'array'),
            constraint facts_metadata_object check (jsonb_typeof(metadata) = 'object')
        ) with (fillfactor = 85)
    """)
    op.execute("""
        create unique index facts_active_key on facts (tenant_id, scope, subject, predicate)
        where validity = 'active'
    """)
    op.execute("create index facts_active on facts (tenant_id, scope, validity) where validity = 'active'")
    op.execute("create index facts_by_key on facts (tenant_id, subject, predicate)")
    op.execute("create index facts_search on facts using gin (search_vector)")
    op.execute("create index facts_tags on facts using gin (tags)")
    op.execute("""
        create index facts_embedding on facts
        using ivfflat (embedding vector_cosine_ops) with (lists = 20)
    """)
    op.execute("""
        create index facts_by_source_episode on facts (tenant_id, source_episode_id)
        where source_episode_id is not null
    """)
    op.execute("""
        create index facts_by_superseded on facts (tenant_id, supersedes_id) where supersedes_id is not null
    """)
    _facts_lifecycle()
    op.execute("comment on table facts is 'What is believed: subject, predicate, content.'")
    op.execute("""
        comment on column facts.confidence is 'As last confirmed; decay_rate says what is left of it today.'
    """)
    op.execute("comment on column facts.decay_rate is 'Per day, exponential; 0 never fades.'")
    op.execute("""
        comment on column facts.validity is
        'A fading fact is active with metadata.status = fading; forgotten is stored as retracted.'
    """)
    op.execute("comment on column facts.last_confirmed_at is 'Decay counts from here; null is no confidence.'")
    op.execute("comment on column facts.supersedes_id is 'The fact this one took the place of.'")


def _facts_lifecycle() -> None:
    op.execute("""
        create function facts_normalise() returns trigger language plpgsql set search_path = '' as $$
        begin
            if new.validity = 'forgotten' then
                new.validity := 'retracted';
            else
                new.validity := 'active';
                new.metadata := new.metadata || jsonb_build_object('status', 'fading');
            end if;
            return new;
        end $$
    """)
    op.execute("comment on function facts_normalise() is 'One encoding for fading and for forgotten facts.'")
    op.execute("""
        create trigger facts_normalise before insert or update on facts for each row
        when (new.validity in ('fading', 'forgotten')) execute function facts_normalise()
    """)


def _rules() -> None:
    op.execute(r"""
        create table rules (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            content text not null,
            embedding vector(384),
            search_vector tsvector,
            scope text not null default 'global',
            maturity text not null default 'candidate',
            confidence double precision not null default 0.5,
            decay_rate double precision not null default 0.008,
            permanence text not null default 'standard',
            effectiveness_score double precision not null default 0.0,
            applied_count integer not null default 0,
            success_count integer not null default 0,
            harmful_count integer not null default 0,
            source_episode_id uuid,
            source_butler text,
            created_at timestamptz not null default now(),
            last_applied_at timestamptz,
            last_evaluated_at timestamptz,
            last_confirmed_at timestamptz default now(),
            reference_count integer not null default 0,
            last_referenced_at timestamptz default now(),
            tags jsonb not null default '[]',
            metadata jsonb not null default '{}',
            constraint rules_pkey primary key (tenant_id, id),
            constraint rules_source_episode_fkey foreign key (tenant_id, source_episode_id)
                references episodes (tenant_id, id) on delete set null (source_episode_id),
            constraint rules_tenant_named check (tenant_id <> ''),
            constraint rules_content_not_blank check (content ~ '\S'),
            constraint rules_scope_not_blank check (scope ~ '\S'),
            constraint rules_embedding_has_direction check (vector_norm(embedding) > 0),
            constraint rules_maturity_known
                check (maturity in ('candidate', 'established', 'proven', 'anti_pattern')),
            constraint rules_confidence_range check (confidence between 0 and 1),
            constraint rules_decay_rate_range check (decay_rate >= 0 and decay_rate < 'infinity'),
            constraint rules_permanence_known
                check (permanence in ('permanent', 'stable', 'standard', 'volatile', 'ephemeral')),
            constraint rules_effectiveness_score_range check (effectiveness_score between 0 and 1),
            constraint rules_applied_count_counted check (applied_count >= 0),
            constraint rules_success_count_counted check (success_count >= 0),
            constraint rules_harmful_count_counted check (harmful_count >= 0),
            constraint rules_reference_count_counted check (reference_count >= 0),
            constraint rules_tags_array check (jsonb_typeof(tags) = 'array'),
            constraint rules_metadata_object check (jsonb_typeof(metadata) = 'object')
        ) with (fillfactor = 85)
    """)
    op.execute("create index rules_by_maturity on rules (tenant_id, scope, maturity)")
    op.execute("create index rules_search on rules using gin (search_vector)")
    op.execute("""
        create index rules_embedding on rules
        using ivfflat (embedding vector_cosine_ops) with (lists = 20)
    """)
    op.execute("""
        create index rules_by_source_episode on rules (tenant_id, source_episode_id)
        where source_episode_id is not null
    """)
    op.execute("comment on table rules is 'How to behave, learned from outcomes.'")
    op.execute("""
        comment on column rules.metadata is
        'forgotten, status (fading), needs_inversion, harmful_reasons, original_content.'
    """)
    op.execute("comment on column rules.last_confirmed_at is 'Decay counts from here; null is no confidence.'")
    op.execute("comment on column rules.last_evaluated_at is 'When its maturity was last looked at.'")


def _memory_links() -> None:
    op.execute("""
        create table memory_links (
            tenant_id text not null,
            source_type text not null,
            source_id uuid not null,
            target_type text not null,
            target_id uuid not null,
            relation text not null,
            created_at timestamptz not null default now(),
            constraint memory_links_pkey
                primary key (tenant_id, source_type, source_id, target_type, target_id),
            constraint memory_links_tenant_named check (tenant_id <> ''),
            constraint memory_links_source_type_known check (source_type in ('episode', 'fact', 'rule')),
            constraint memory_links_target_type_known check (target_type in ('episode', 'fact', 'rule')),
            constraint memory_links_relation_known
                check (relation in ('derived_from', 'supports', 'contradicts', 'supersedes', 'related_to'))
        )
    """)
    op.execute("create index memory_links_by_target on memory_links (tenant_id, target_type, target_id)")
    op.execute("""
        comment on table memory_links is
        'Where a memory came from and what it relates to; outlives the episode it points at.'
    """)
