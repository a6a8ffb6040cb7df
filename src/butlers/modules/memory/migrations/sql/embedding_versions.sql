-- Embedding versions: every model and version that ever made a vector of a tenant.

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
);
select enable_tenant_isolation('embedding_versions');

comment on table embedding_versions is 'Every model and version that ever made a vector here.';
