-- Episodes: observations of sessions, kept until they are consolidated or expire.

create table episodes (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    butler text not null,
    session_id uuid,
    content text not null,
    embedding vector(384),
    embedding_version_id uuid,
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
    lease_token uuid,
    leased_until timestamptz,
    created_at timestamptz not null default now(),
    last_referenced_at timestamptz,
    expires_at timestamptz default now() + interval '7 days',
    metadata jsonb not null default '{}',
    constraint episodes_pkey primary key (tenant_id, id),
    constraint episodes_embedding_version_fkey foreign key (tenant_id, embedding_version_id)
        references embedding_versions (tenant_id, id),
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
) with (fillfactor = 85);
select enable_tenant_isolation('episodes');

create index episodes_by_butler on episodes (tenant_id, butler, created_at desc);
create index episodes_by_session on episodes (tenant_id, session_id) where session_id is not null;
create index episodes_by_expiry on episodes (tenant_id, expires_at) where expires_at is not null;
create index episodes_pending on episodes (tenant_id, butler, created_at) where consolidation_status = 'pending';
create index episodes_failed on episodes (tenant_id, butler, created_at) where consolidation_status = 'failed';
create index episodes_dead_letter on episodes (tenant_id, butler) where consolidation_status = 'dead_letter';
create index episodes_consolidated on episodes (tenant_id, created_at) where consolidation_status = 'consolidated';
create index episodes_leased on episodes (tenant_id, butler) where lease_token is not null;
create index episodes_search on episodes using gin (search_vector);
create index episodes_embedding on episodes using ivfflat (embedding vector_cosine_ops) with (lists = 20);
create index episodes_by_embedding_version on episodes (tenant_id, embedding_version_id)
    where embedding_version_id is not null;
create index episodes_unembedded on episodes (tenant_id, id) where embedding_version_id is null or embedding is null;

comment on table episodes is 'Raw observations from sessions, short-lived.';
comment on column episodes.consolidation_status is
    'pending until consolidation has read it; dead_letter after the last failed attempt.';
comment on column episodes.consolidated is 'Mirrors consolidation_status.';
comment on column episodes.retry_count is 'Mirrors consolidation_attempts.';
comment on column episodes.last_error is 'Mirrors last_consolidation_error.';
comment on column episodes.expires_at is 'Cleanup deletes the episode after this time; null keeps it.';
comment on column episodes.embedding_version_id is
    'The version that made the vector; a search never compares vectors of different versions.';
comment on column episodes.lease_token is
    'The consolidation worker that has the episode; only the holder of the token writes its result.';
comment on column episodes.leased_until is 'Another worker may take the episode after this time.';
