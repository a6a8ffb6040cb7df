-- name: sessions(tenant_id, butler, kind, from_time, from_id, is_backward, max_scanned, max_characters, max_rows)
-- Sessions, newest first, after or before a position: the butler's own, those the system starts for itself (internal),
-- and those of connected agents, which have receipts only.
with own as (
    select id, butler, case when internal then 'internal' else 'own' end as kind, trigger_source as purpose,
           left(prompt, :max_characters) as prompt, status, usage, started_at, finished_at
      from sessions
     where tenant_id = :tenant_id
       and (:butler::text is null or butler = :butler)
       and (:kind::text is null or case when internal then 'internal' else 'own' end = :kind)
       and (:from_id::uuid is null
         or case when :is_backward::boolean then (started_at, id) > (:from_time::timestamptz, :from_id)
                 else (started_at, id) < (:from_time, :from_id) end)
     order by case when not :is_backward then started_at end desc, case when not :is_backward then id end desc,
              case when :is_backward then started_at end, case when :is_backward then id end
     limit :max_rows
), scanned as (
    select id, session_id, butler, agent, told_at
      from session_receipts
     where tenant_id = :tenant_id
       and (:kind::text is null or :kind = 'agent')
       and (:butler::text is null or butler = :butler)
       and (:from_id::uuid is null
         or case when :is_backward::boolean then (told_at, session_id) > (:from_time::timestamptz, :from_id)
                 else (told_at, session_id) < (:from_time, :from_id) end)
     order by case when not :is_backward then told_at end desc, case when :is_backward then told_at end
     limit :max_scanned
), agents as (
    select r.session_id as id, r.butler, 'agent' as kind, coalesce(r.agent, 'unknown agent') as purpose,
           null::text as prompt, null::text as status, '{}'::jsonb as usage, r.told_at as started_at,
           null::timestamptz as finished_at
      from scanned r
     where not exists (
               select
                 from session_receipts e
                where e.tenant_id = :tenant_id
                  and e.session_id = r.session_id
                  and (e.told_at, e.id) < (r.told_at, r.id)
           )
       and not exists (select from sessions s where s.tenant_id = :tenant_id and s.id = r.session_id)
), found as (
    select *
      from (select * from own union all select * from agents) both_kinds
     order by case when not :is_backward then started_at end desc, case when not :is_backward then id end desc,
              case when :is_backward then started_at end, case when :is_backward then id end
     limit :max_rows
)
select f.*, coalesce(r.told, 0) as told, coalesce(r.left_out, 0) as left_out, r.calls
  from found f
  left join lateral (
      select sum(told)::bigint as told, sum(left_out)::bigint as left_out, count(*) as calls
        from session_receipts
       where tenant_id = :tenant_id
         and session_id = f.id
  ) r on true
 order by case when not :is_backward then started_at end desc, case when not :is_backward then f.id end desc,
          case when :is_backward then started_at end, case when :is_backward then f.id end;

-- name: session(tenant_id, id, max_characters)^
-- A session of the butler's runtime.
select id, butler, trigger_source as purpose, left(prompt, :max_characters) as prompt, length(prompt) as prompt_characters,
       runtime, status, internal, actor, request_id, runtime_session_id, usage, tools,
       left(answer, :max_characters) as answer, length(answer) as answer_characters, error, started_at, finished_at
  from sessions
 where tenant_id = :tenant_id
   and id = :id;

-- name: token_use(tenant_id, since, max_rows)
-- Tokens by day (counted back from now), butler and purpose, and the sessions whose runtime reported none. Consolidation
-- counts by its runs, which estimate what the runtime does not report.
select floor(extract(epoch from now() - started_at) / 86400)::integer as days_ago, butler, purpose,
       coalesce(sum(tokens), 0)::bigint as tokens, count(*) as sessions,
       count(*) filter (where tokens is null) as unreported
  from (
      (select started_at, butler, trigger_source as purpose,
              (usage -> 'input_tokens')::bigint + (usage -> 'output_tokens')::bigint as tokens
         from sessions
        where tenant_id = :tenant_id
          and started_at > :since
          and not internal
        order by started_at desc
        limit :max_rows)
      union all
      (select started_at, butler, 'consolidation', input_tokens + output_tokens
         from consolidation_runs
        where tenant_id = :tenant_id
          and started_at > :since
        order by started_at desc
        limit :max_rows)
  ) used
 group by 1, 2, 3;

-- name: episodes_of(tenant_id, session_id, max_characters, max_rows)
-- The episodes of a session, oldest first.
select id, left(content, :max_characters) as content, consolidation_status, created_at
  from episodes
 where tenant_id = :tenant_id
   and session_id = :session_id
 order by created_at, id
 limit :max_rows;
