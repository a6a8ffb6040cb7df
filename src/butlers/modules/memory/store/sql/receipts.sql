-- name: insert(tenant_id, ids, session_ids, sources, butler, agents, told, left_out, tokens, token_budgets, told_at, line_receipts, memory_types, memory_ids, line_sessions, line_times, ranks, outcomes, scores, line_tokens)!
-- Stores receipts with their lines.
with stored as (
    insert into session_receipts (
        tenant_id, id, session_id, source, butler, agent, told, left_out, tokens, token_budget, told_at
    )
    select :tenant_id, r.id, r.session_id, r.source, :butler, r.agent, r.told, r.left_out, r.tokens, r.token_budget,
           r.told_at
      from unnest(
               :ids::uuid[], :session_ids::uuid[], :sources::text[], :agents::text[], :told::integer[],
               :left_out::integer[], :tokens::integer[], :token_budgets::integer[], :told_at::timestamptz[]
           ) as r (id, session_id, source, agent, told, left_out, tokens, token_budget, told_at)
)
insert into session_receipt_lines (
    tenant_id, receipt_id, memory_type, memory_id, session_id, told_at, rank, outcome, score, tokens
)
select :tenant_id, l.receipt_id, l.memory_type, l.memory_id, l.session_id, l.told_at, l.rank, l.outcome, l.score, l.tokens
  from unnest(
           :line_receipts::uuid[], :memory_types::text[], :memory_ids::uuid[], :line_sessions::uuid[],
           :line_times::timestamptz[], :ranks::integer[], :outcomes::text[], :scores::double precision[],
           :line_tokens::integer[]
       ) as l (receipt_id, memory_type, memory_id, session_id, told_at, rank, outcome, score, tokens);

-- name: of_session(tenant_id, session_id, max_rows)
-- The latest receipts of a session, oldest first.
select *
  from (
      select id, session_id, source, butler, agent, told, left_out, tokens, token_budget, told_at
        from session_receipts
       where tenant_id = :tenant_id
         and session_id = :session_id
       order by told_at desc, id
       limit :max_rows
  ) latest
 order by told_at, id;

-- name: lines_of(tenant_id, receipt_ids)
-- The lines of these receipts: the told ones first, each by rank.
select receipt_id, memory_type, memory_id, rank, outcome, score, tokens
  from session_receipt_lines
 where tenant_id = :tenant_id
   and receipt_id = any (:receipt_ids::uuid[])
 order by outcome <> 'told', rank, memory_id;

-- name: told_sessions(tenant_id, memory_id, max_rows)
-- The latest receipts that told a memory, newest first.
select r.session_id, r.source, r.butler, r.agent, r.told, l.rank, l.score, l.tokens, l.told_at
  from (
      select receipt_id, rank, score, tokens, told_at
        from session_receipt_lines
       where tenant_id = :tenant_id
         and memory_id = :memory_id
         and outcome = 'told'
       order by told_at desc
       limit :max_rows
  ) l
  join session_receipts r on r.tenant_id = :tenant_id and r.id = l.receipt_id
 order by l.told_at desc, r.id;

-- name: count_told(tenant_id, memory_ids, max_counted)
-- For each memory, how many sessions were told it, counted over its latest lines up to a limit, and the last time.
select m.memory_id, count(distinct told.session_id) as sessions, max(told.told_at) as last_told_at
  from unnest(:memory_ids::uuid[]) as m (memory_id), lateral (
      select session_id, told_at
        from session_receipt_lines
       where tenant_id = :tenant_id
         and memory_id = m.memory_id
         and outcome = 'told'
       order by told_at desc
       limit :max_counted
  ) told
 group by m.memory_id;

-- name: told_in_sessions(tenant_id, session_ids)
-- The memories that these sessions were told or found.
select distinct l.session_id, l.memory_type, l.memory_id
  from session_receipts r
  join session_receipt_lines l on l.tenant_id = :tenant_id and l.receipt_id = r.id
 where r.tenant_id = :tenant_id
   and r.session_id = any (:session_ids::uuid[])
   and l.outcome = 'told';

-- name: delete_old(tenant_id, days, max_rows)$
-- Deletes the oldest receipts past their time with their lines, and counts them.
with deleted as (
    delete from session_receipts
     where tenant_id = :tenant_id
       and id = any (array(
           select id
             from session_receipts
            where tenant_id = :tenant_id
              and told_at < now() - make_interval(days => :days)
            order by told_at
            limit :max_rows
       ))
    returning 1
)
select count(*) from deleted;
