-- name: events(tenant_id, event_type, entity_ids, request_id, since, until, actor, via, from_time, from_id, is_backward, max_scanned, max_rows)
-- Events, newest first, after or before a position. A filter that has no index looks at so many events at most.
select id, event_type, entity_type, entity_id, actor, request_id, occurred_at, payload, via
  from (
      select id, event_type, entity_type, entity_id, actor, request_id, occurred_at, payload,
             case when payload ->> 'via' is not null then payload ->> 'via'
                  when actor = 'consolidation' then 'consolidation'
                  when actor in ('sweep', 'cleanup', 'reembed') then 'job'
                  else 'tool' end as via
        from memory_events
       where tenant_id = :tenant_id
         and (:event_type::text is null or event_type = :event_type)
         and (:entity_ids::uuid[] is null
           or (entity_type in ('fact', 'rule', 'episode', 'entity') and entity_id = any (:entity_ids)))
         and (:request_id::text is null or request_id = :request_id)
         and (:since::timestamptz is null or occurred_at >= :since)
         and (:until::timestamptz is null or occurred_at < :until)
         and (:from_id::uuid is null
           or case when :is_backward::boolean then (occurred_at, id) > (:from_time::timestamptz, :from_id)
                   else (occurred_at, id) < (:from_time, :from_id) end)
       order by case when not :is_backward then occurred_at end desc, case when not :is_backward then id end desc,
                case when :is_backward then occurred_at end, case when :is_backward then id end
       limit :max_scanned
  ) scanned
 where (:actor::text is null or actor = :actor)
   and (:via::text is null or via = :via)
 order by case when not :is_backward then occurred_at end desc, case when not :is_backward then id end desc,
          case when :is_backward then occurred_at end, case when :is_backward then id end
 limit :max_rows;

-- name: last_scanned_event(tenant_id, event_type, entity_ids, request_id, since, until, from_time, from_id, is_backward, max_scanned)^
-- The last of the events that `events` looks at, if there are that many.
select occurred_at, id
  from (
      select occurred_at, id, row_number() over () as place
        from (
            select occurred_at, id
              from memory_events
             where tenant_id = :tenant_id
               and (:event_type::text is null or event_type = :event_type)
               and (:entity_ids::uuid[] is null
                 or (entity_type in ('fact', 'rule', 'episode', 'entity') and entity_id = any (:entity_ids)))
               and (:request_id::text is null or request_id = :request_id)
               and (:since::timestamptz is null or occurred_at >= :since)
               and (:until::timestamptz is null or occurred_at < :until)
               and (:from_id::uuid is null
                 or case when :is_backward::boolean then (occurred_at, id) > (:from_time::timestamptz, :from_id)
                         else (occurred_at, id) < (:from_time, :from_id) end)
             order by case when not :is_backward then occurred_at end desc,
                      case when not :is_backward then id end desc,
                      case when :is_backward then occurred_at end, case when :is_backward then id end
             limit :max_scanned
        ) scanned
  ) numbered
 where place = :max_scanned;

-- name: event_facets(tenant_id, event_type, entity_ids, request_id, since, until, actor, via, max_counted)
-- How many of the newest events match, in all and by each facet.
with counted as materialized (
    select event_type, actor, via,
           (:actor::text is null or actor = :actor) and (:via::text is null or via = :via) as is_match
      from (
          select event_type, actor,
                 case when payload ->> 'via' is not null then payload ->> 'via'
                      when actor = 'consolidation' then 'consolidation'
                      when actor in ('sweep', 'cleanup', 'reembed') then 'job'
                      else 'tool' end as via
            from memory_events
           where tenant_id = :tenant_id
             and (:event_type::text is null or event_type = :event_type)
             and (:entity_ids::uuid[] is null
               or (entity_type in ('fact', 'rule', 'episode', 'entity') and entity_id = any (:entity_ids)))
             and (:request_id::text is null or request_id = :request_id)
             and (:since::timestamptz is null or occurred_at >= :since)
             and (:until::timestamptz is null or occurred_at < :until)
           order by occurred_at desc
           limit :max_counted
      ) newest
)
select case when grouping(event_type) = 0 then 'type' when grouping(actor) = 0 then 'actor'
            when grouping(via) = 0 then 'via' else 'total' end as facet,
       coalesce(event_type, actor, via, '') as value, count(*) as number
  from counted
 where is_match
 group by grouping sets ((), (event_type), (actor), (via))
union all
select 'counted', '', count(*) from counted
order by 1, 3 desc, 2;

-- name: names(tenant_id, ids, max_characters)
-- The present names of memories and entities; a deleted one has none.
select id, left(subject, :max_characters) || ' · ' || left(predicate, :max_characters) as name
  from facts where tenant_id = :tenant_id and id = any (:ids::uuid[])
union all
select id, left(content, :max_characters) from rules where tenant_id = :tenant_id and id = any (:ids)
union all
select id, left(content, :max_characters) from episodes where tenant_id = :tenant_id and id = any (:ids)
union all
select id, left(coalesce(metadata ->> 'former_name', canonical_name), :max_characters)
  from entities where tenant_id = :tenant_id and id = any (:ids);
