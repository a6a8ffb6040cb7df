-- Judging by people: the words that an edit replaced, events by request, and the indexes of the review piles.

create table edit_history (
    tenant_id text not null,
    request_id text not null,
    record_type text not null,
    record_id uuid not null,
    before jsonb not null,
    after jsonb not null,
    edited_at timestamptz not null default now(),
    constraint edit_history_pkey primary key (tenant_id, request_id, record_type, record_id),
    constraint edit_history_tenant_named check (tenant_id <> ''),
    constraint edit_history_record_type_known check (record_type in ('fact', 'rule', 'entity')),
    constraint edit_history_before_object check (jsonb_typeof(before) = 'object'),
    constraint edit_history_after_object check (jsonb_typeof(after) = 'object')
);
select enable_tenant_isolation('edit_history');

create index edit_history_by_record on edit_history (tenant_id, record_type, record_id);
create index edit_history_by_age on edit_history (tenant_id, edited_at);

comment on table edit_history is
    'The words that an edit replaced (tags, names, aliases, metadata, reasons), for its undo; events hold no words.';
comment on column edit_history.after is 'The words that the edit wrote: an undo requires that they are still there.';

create index memory_events_by_request on memory_events (tenant_id, request_id, occurred_at desc)
    where request_id is not null;
create index memory_events_by_undone on memory_events (tenant_id, (payload ->> 'undone')) where payload ? 'undone';

create index entities_live_by_creation on entities (tenant_id, created_at desc, id desc)
    where not (metadata ? 'merged_into');
create index rules_harmful on rules (tenant_id, harmful_count desc, id)
    where harmful_count > 0 and maturity <> 'anti_pattern' and not coalesce((metadata -> 'forgotten')::boolean, false);
create index facts_vital on facts (tenant_id, permanence, created_at, id) where validity = 'active' and importance >= 8;
create index facts_distilled on facts (tenant_id, created_at desc, id desc)
    where validity = 'active' and metadata ->> 'provenance' = 'distilled';
create index rules_distilled on rules (tenant_id, created_at desc, id desc)
    where not coalesce((metadata -> 'forgotten')::boolean, false) and metadata ->> 'provenance' = 'distilled';

-- One lookup for each entity finds its namesakes by name and by alias. The comparison of normalised names is not
-- leakproof, so the function reads as its owner, within the caller's tenant.
create function find_entity_twins(max_newest bigint, max_each bigint)
returns table (id uuid, other_id uuid, similarity double precision)
language sql stable security definer rows 50 set search_path = public, pg_catalog as $$
    with newest as materialized (
        select e.id, split_part(e.names, chr(31), 1) as name,
               tenant_terms(e.tenant_id, array[split_part(e.names, chr(31), 1)]) as terms
          from entities e
         where e.tenant_id = (select current_tenant())
           and not (e.metadata ? 'merged_into')
         order by e.created_at desc, e.id desc
         limit max_newest
    )
    select greatest(n.id, found.id), least(n.id, found.id), max(found.similarity)
      from newest n, lateral (
            select e.id, case when split_part(e.names, chr(31), 1) = n.name then 1.0 else 0.9 end as similarity
              from entities e
             where e.tenant_id = (select current_tenant())
               and not (e.metadata ? 'merged_into')
               and e.id <> n.id
               and tenant_terms(e.tenant_id, string_to_array(e.names, chr(31))) && n.terms
             limit max_each
      ) found
     group by 1, 2
$$;
comment on function find_entity_twins(bigint, bigint) is
    'Pairs of the newest live entities with others of the same name (similarity 1) or alias (0.9).';

-- Row-level security keeps a comparison of a payload's value from the index: it is not leakproof.
create function find_events_of_session(session text)
returns table (event_type text, entity_type text, entity_id uuid)
language sql stable security definer rows 20 set search_path = public, pg_catalog as $$
    select e.event_type, e.entity_type, e.entity_id
      from memory_events e
     where e.tenant_id = (select current_tenant())
       and e.payload ? 'session_id'
       and e.payload ->> 'session_id' = session
$$;
comment on function find_events_of_session(text) is 'The events of a session in the caller''s tenant.';

comment on column facts.confidence is
    'As last confirmed or, after its permanence was edited, as it was then; effective_confidence() says what is left of it today.';
comment on column facts.metadata is
    'status (fading), provenance, session_id, confidence_when_confirmed (what a confirmation brings back after permanence was edited).';
comment on column rules.metadata is
    'forgotten, status (fading), needs_inversion, harmful_reasons, original_content, provenance, confidence_when_confirmed.';
