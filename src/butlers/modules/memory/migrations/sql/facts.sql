-- Facts: what is believed, as subject, predicate and content. sql/entities.sql adds the entity and the keys.

create table facts (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    subject text not null,
    predicate text not null,
    content text not null,
    embedding vector(384),
    embedding_version_id uuid,
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
    constraint facts_embedding_version_fkey foreign key (tenant_id, embedding_version_id)
        references embedding_versions (tenant_id, id),
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
) with (fillfactor = 85);
select enable_tenant_isolation('facts');

create index facts_active on facts (tenant_id, scope, validity) where validity = 'active';
create index facts_by_key on facts (tenant_id, subject, predicate);
create index facts_search on facts using gin (search_vector);
create index facts_tags on facts using gin (tags);
create index facts_embedding on facts using ivfflat (embedding vector_cosine_ops) with (lists = 20);
create index facts_by_embedding_version on facts (tenant_id, embedding_version_id)
    where embedding_version_id is not null;
create index facts_unembedded on facts (tenant_id, id) where embedding_version_id is null or embedding is null;
create index facts_by_source_episode on facts (tenant_id, source_episode_id) where source_episode_id is not null;
create index facts_by_superseded on facts (tenant_id, supersedes_id) where supersedes_id is not null;

comment on table facts is 'What is believed: subject, predicate, content.';
comment on column facts.confidence is 'As last confirmed; effective_confidence() says what is left of it today.';
comment on column facts.decay_rate is 'Exponential decay per day; 0 never fades.';
comment on column facts.validity is
    'A fading fact is active with metadata.status = fading; a forgotten one is retracted.';
comment on column facts.last_confirmed_at is 'Decay counts from here; null is no confidence.';
comment on column facts.supersedes_id is 'The fact that this one replaced.';
comment on column facts.embedding_version_id is
    'The version that made the vector; a search never compares vectors of different versions.';

create function facts_normalize_validity() returns trigger language plpgsql set search_path = '' as $$
begin
    if new.validity = 'forgotten' then
        new.validity := 'retracted';
    else
        new.validity := 'active';
        new.metadata := new.metadata || jsonb_build_object('status', 'fading');
    end if;
    return new;
end $$;
comment on function facts_normalize_validity() is 'Stores validity fading as active with metadata.status, and forgotten as retracted.';

create trigger facts_normalize_validity before insert or update on facts for each row
    when (new.validity in ('fading', 'forgotten')) execute function facts_normalize_validity();
