-- Receipts: what a session was told or found, as ids and numbers.

create table session_receipts (
    tenant_id text not null,
    id uuid not null default gen_random_uuid(),
    session_id uuid not null,
    source text not null,
    butler text not null,
    agent text,
    told integer not null,
    left_out integer not null,
    tokens integer,
    token_budget integer,
    told_at timestamptz not null default now(),
    constraint session_receipts_pkey primary key (tenant_id, id),
    constraint session_receipts_tenant_named check (tenant_id <> ''),
    constraint session_receipts_source_known check (source in ('context', 'recall', 'search', 'get'))
);
select enable_tenant_isolation('session_receipts');

create index session_receipts_by_session on session_receipts (tenant_id, session_id, told_at);
create index session_receipts_by_time on session_receipts (tenant_id, told_at);

comment on table session_receipts is
    'What one call told a session, its own or one of a connected agent; ids and numbers, no words.';
comment on column session_receipts.session_id is
    'A session of the butler''s runtime (sessions.id), or one of a connected agent, which has no row there.';
comment on column session_receipts.agent is 'The connected agent of the session; null for the butler''s own.';
comment on column session_receipts.left_out is 'Memories that were found and not told; the lines have the best of them.';

create table session_receipt_lines (
    tenant_id text not null,
    receipt_id uuid not null,
    memory_type text not null,
    memory_id uuid not null,
    session_id uuid not null,
    told_at timestamptz not null default now(),
    rank integer not null,
    outcome text not null,
    score double precision,
    tokens integer,
    constraint session_receipt_lines_pkey primary key (tenant_id, receipt_id, memory_id, memory_type),
    constraint session_receipt_lines_receipt_fkey foreign key (tenant_id, receipt_id)
        references session_receipts (tenant_id, id) on delete cascade,
    constraint session_receipt_lines_tenant_named check (tenant_id <> ''),
    constraint session_receipt_lines_type_known check (memory_type in ('episode', 'fact', 'rule')),
    constraint session_receipt_lines_outcome_known
        check (outcome in ('told', 'no_room', 'too_long', 'beyond_best'))
);
select enable_tenant_isolation('session_receipt_lines');

create index session_receipt_lines_by_memory on session_receipt_lines (tenant_id, memory_id, outcome, told_at desc)
    include (session_id);

comment on table session_receipt_lines is 'The memories of a receipt, told or left out; they may be gone by now.';
comment on column session_receipt_lines.rank is 'The place among the memories found, from 1; of episodes, the newest first.';
comment on column session_receipt_lines.outcome is
    'told, or why it was left out: no_room, too_long (for any section), beyond_best (others ranked higher).';
comment on column session_receipt_lines.tokens is 'The tokens of its line in a context block; null where not counted.';
