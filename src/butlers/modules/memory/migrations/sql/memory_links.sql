-- Links: where a memory came from and what it relates to.

create table memory_links (
    tenant_id text not null,
    source_type text not null,
    source_id uuid not null,
    target_type text not null,
    target_id uuid not null,
    relation text not null,
    created_at timestamptz not null default now(),
    constraint memory_links_pkey primary key (tenant_id, source_type, source_id, target_type, target_id),
    constraint memory_links_tenant_named check (tenant_id <> ''),
    constraint memory_links_source_type_known check (source_type in ('episode', 'fact', 'rule')),
    constraint memory_links_target_type_known check (target_type in ('episode', 'fact', 'rule')),
    constraint memory_links_relation_known
        check (relation in ('derived_from', 'supports', 'contradicts', 'supersedes', 'related_to'))
);
select enable_tenant_isolation('memory_links');

create index memory_links_by_target on memory_links (tenant_id, target_type, target_id);

comment on table memory_links is
    'Where a memory came from and what it relates to; a link outlives the episode it points at.';
