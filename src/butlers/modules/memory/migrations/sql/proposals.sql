-- Proposals: what consolidation would store, in a table of their own, so that no search reads them in any state.

create table consolidation_proposals (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    run_id uuid not null,
    butler text not null,
    change text not null,
    action jsonb not null,
    target_id uuid,
    evidence uuid[] not null default '{}',
    happened_at timestamptz not null,
    status text not null default 'waiting',
    created_at timestamptz not null default now(),
    expires_at timestamptz not null,
    decided_at timestamptz,
    decided_by text,
    memory_id uuid,
    constraint consolidation_proposals_pkey primary key (tenant_id, id),
    constraint consolidation_proposals_tenant_named check (tenant_id <> ''),
    constraint consolidation_proposals_change_known
        check (change in ('new_facts', 'updated_facts', 'new_rules', 'confirmations')),
    constraint consolidation_proposals_status_known
        check (status in ('waiting', 'accepted', 'declined', 'expired')),
    constraint consolidation_proposals_action_object check (jsonb_typeof(action) = 'object')
);
select enable_tenant_isolation('consolidation_proposals');

create index consolidation_proposals_waiting on consolidation_proposals (tenant_id, created_at, id)
    where status = 'waiting';
create index consolidation_proposals_by_run on consolidation_proposals (tenant_id, run_id);

comment on table consolidation_proposals is
    'What consolidation would store with review = "before": it waits for a person, and no search reads it.';
comment on column consolidation_proposals.change is 'The section of the model''s output that the action is from.';
comment on column consolidation_proposals.action is 'The action as the model''s output has it, without secrets.';
comment on column consolidation_proposals.happened_at is 'The time of the latest episode it comes from.';
comment on column consolidation_proposals.memory_id is 'The memory that an accepted proposal stored or confirmed.';

alter table consolidation_runs add column proposed integer not null default 0;
comment on column consolidation_runs.proposed is 'Actions that wait, or waited, for a person.';
