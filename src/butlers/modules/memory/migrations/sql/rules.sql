-- Rules: ways of working, with the trust they earned.

create table rules (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    content text not null,
    embedding vector(384),
    embedding_version_id uuid,
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
    constraint rules_embedding_version_fkey foreign key (tenant_id, embedding_version_id)
        references embedding_versions (tenant_id, id),
    constraint rules_source_episode_fkey foreign key (tenant_id, source_episode_id)
        references episodes (tenant_id, id) on delete set null (source_episode_id),
    constraint rules_tenant_named check (tenant_id <> ''),
    constraint rules_content_not_blank check (content ~ '\S'),
    constraint rules_scope_not_blank check (scope ~ '\S'),
    constraint rules_embedding_has_direction check (vector_norm(embedding) > 0),
    constraint rules_maturity_known check (maturity in ('candidate', 'established', 'proven', 'anti_pattern')),
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
) with (fillfactor = 85);
select enable_tenant_isolation('rules');

create index rules_by_maturity on rules (tenant_id, scope, maturity);
create index rules_search on rules using gin (search_vector);
create index rules_embedding on rules using ivfflat (embedding vector_cosine_ops) with (lists = 20);
create index rules_by_embedding_version on rules (tenant_id, embedding_version_id)
    where embedding_version_id is not null;
create index rules_unembedded on rules (tenant_id, id) where embedding_version_id is null or embedding is null;
create index rules_by_source_episode on rules (tenant_id, source_episode_id) where source_episode_id is not null;

comment on table rules is 'How to behave, learned from outcomes.';
comment on column rules.metadata is
    'forgotten, status (fading), needs_inversion, harmful_reasons, original_content.';
comment on column rules.last_confirmed_at is 'Decay counts from here; null is no confidence.';
comment on column rules.last_evaluated_at is 'When the maturity was last evaluated.';
comment on column rules.embedding_version_id is
    'The version that made the vector; a search never compares vectors of different versions.';

-- Rule applications: one row for each helpful or harmful mark.

create table rule_applications (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    rule_id uuid not null,
    outcome text not null,
    applied_at timestamptz not null default now(),
    actor text,
    session_id uuid,
    request_id text,
    context jsonb not null default '{}',
    constraint rule_applications_pkey primary key (tenant_id, id),
    constraint rule_applications_rule_fkey foreign key (tenant_id, rule_id)
        references rules (tenant_id, id) on delete cascade,
    constraint rule_applications_tenant_named check (tenant_id <> ''),
    constraint rule_applications_outcome_known check (outcome in ('helpful', 'harmful')),
    constraint rule_applications_context_object check (jsonb_typeof(context) = 'object')
);
select enable_tenant_isolation('rule_applications');

create index rule_applications_by_rule on rule_applications (tenant_id, rule_id, applied_at desc);

comment on table rule_applications is 'One row for each helpful or harmful mark.';
