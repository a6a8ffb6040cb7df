-- name: matching(tenant_id, memory_type, subject, entity_id, maturity, awaits_inversion, states, scope, permanence, predicate, provenance, tag, min_confidence, below_confidence, sort, at, from_time, from_key, from_id, is_backward, fading_below, max_scanned, max_oldest, max_rows)
-- Ids of the facts or rules that match, in the order of a list and after or before a position in it. Newest first
-- reads an index and stops with the last row; a filter that has no index looks at so many rows at most. The other
-- orders sort the newest rows, or those of each permanence that were confirmed longest ago, since these fade first.
with scanned as (
    (select id, created_at, scope, permanence, predicate, reference_count, state, is_fading, tags, metadata,
            stored_confidence, decay_rate, last_confirmed_at
       from memories
      where :sort::text in ('newest', 'used')
        and tenant_id = :tenant_id
        and memory_type = :memory_type
        and (:subject::text is null or subject = :subject)
        and (:entity_id::uuid is null or entity_id = :entity_id)
        and (:maturity::text is null or maturity = :maturity)
        and (:awaits_inversion::boolean is null or awaits_inversion = :awaits_inversion)
        and (:sort <> 'newest' or :from_id::uuid is null
          or case when :is_backward::boolean then (created_at, id) > (:from_time::timestamptz, :from_id)
                  else (created_at, id) < (:from_time, :from_id) end)
      order by case when not (:sort = 'newest' and :is_backward) then created_at end desc,
               case when not (:sort = 'newest' and :is_backward) then id end desc,
               case when :sort = 'newest' and :is_backward then created_at end,
               case when :sort = 'newest' and :is_backward then id end
      limit :max_scanned)
    union all
    (select oldest.*
       from unnest(array['ephemeral', 'volatile', 'standard', 'stable', 'permanent']) as each (permanence),
            lateral (
                select id, created_at, scope, permanence, predicate, reference_count, validity,
                       coalesce(metadata ->> 'status' = 'fading', false), tags, metadata,
                       confidence, decay_rate, last_confirmed_at
                  from facts
                 where tenant_id = :tenant_id
                   and validity = 'active'
                   and permanence = each.permanence
                   and (:subject is null or subject = :subject)
                   and (:entity_id is null or entity_id = :entity_id)
                 order by last_confirmed_at nulls first, id
                 limit :max_oldest
            ) oldest
      where :sort in ('fading', 'confidence'))
), measured as (
    select id, created_at, case when state = 'active' and is_fading then 'fading' else state end as state,
           scope, permanence, predicate, tags, coalesce(metadata ->> 'provenance', 'direct') as provenance,
           effective_confidence(stored_confidence, decay_rate, last_confirmed_at, :at::timestamptz) as confidence,
           case :sort
               when 'used' then reference_count
               when 'confidence' then
                   -effective_confidence(stored_confidence, decay_rate, last_confirmed_at, :at)
               when 'fading' then case when decay_rate > 1e-200 and stored_confidence > 1e-200 then
                   -(extract(epoch from last_confirmed_at)
                     + 86400 * ln(stored_confidence / greatest(:fading_below::double precision, 1e-9)) / decay_rate)
               end
           end::double precision as key
      from scanned
)
select id, created_at, key
  from measured
 where (:states::text[] is null or state = any (:states))
   and (:scope::text is null or scope = :scope)
   and (:permanence::text is null or permanence = :permanence)
   and (:predicate::text is null or predicate = :predicate)
   and (:provenance::text is null or provenance = :provenance)
   and (:tag::text is null or tags ? :tag)
   and (:min_confidence::double precision is null or confidence >= :min_confidence)
   and (:below_confidence::double precision is null or confidence < :below_confidence)
   and (:sort = 'newest' or key is not null)
   and (:sort = 'newest' or :from_id is null
     or case when :is_backward then (key, id) > (:from_key::double precision, :from_id)
             else (key, id) < (:from_key, :from_id) end)
 order by case when not :is_backward then case when :sort = 'newest' then created_at end end desc,
          case when not :is_backward then case when :sort <> 'newest' then key end end desc,
          case when not :is_backward then id end desc,
          case when :is_backward then case when :sort = 'newest' then created_at end end,
          case when :is_backward then case when :sort <> 'newest' then key end end,
          case when :is_backward then id end
 limit :max_rows;

-- name: last_scanned(tenant_id, memory_type, subject, entity_id, maturity, awaits_inversion, from_time, from_id, is_backward, max_scanned)^
-- The last of the rows that `matching` looks at, newest first, if there are that many.
select created_at, id
  from (
      select created_at, id, row_number() over () as place
        from (
            select created_at, id
              from memories
             where tenant_id = :tenant_id
               and memory_type = :memory_type
               and (:subject::text is null or subject = :subject)
               and (:entity_id::uuid is null or entity_id = :entity_id)
               and (:maturity::text is null or maturity = :maturity)
               and (:awaits_inversion::boolean is null or awaits_inversion = :awaits_inversion)
               and (:from_id::uuid is null
                 or case when :is_backward::boolean then (created_at, id) > (:from_time::timestamptz, :from_id)
                         else (created_at, id) < (:from_time, :from_id) end)
             order by case when not :is_backward then created_at end desc, case when not :is_backward then id end desc,
                      case when :is_backward then created_at end, case when :is_backward then id end
             limit :max_scanned
        ) scanned
  ) numbered
 where place = :max_scanned;

-- name: facets(tenant_id, memory_type, subject, entity_id, maturity, awaits_inversion, states, scope, permanence, predicate, provenance, tag, min_confidence, below_confidence, max_counted)
-- How many of the newest facts or rules match, in all and by each facet. The confidence takes as long to compute as
-- all the rest, so it is computed only for a filter by it.
with counted as materialized (
    select state, scope, permanence, provenance, tags,
           (:scope::text is null or scope = :scope)
           and (:permanence::text is null or permanence = :permanence)
           and (:predicate::text is null or predicate = :predicate)
           and (:provenance::text is null or provenance = :provenance)
           and (:tag::text is null or tags ? :tag)
           and (:min_confidence::double precision is null or confidence >= :min_confidence)
           and (:below_confidence::double precision is null or confidence < :below_confidence) as has_rest,
           (:states::text[] is null or state = any (:states)) as has_state
      from (
          select case when state = 'active' and is_fading then 'fading' else state end as state, scope, permanence,
                 predicate, coalesce(metadata ->> 'provenance', 'direct') as provenance, tags,
                 case when coalesce(:min_confidence::double precision, :below_confidence::double precision) is not null
                      then confidence end as confidence
            from memories
           where tenant_id = :tenant_id
             and memory_type = :memory_type
             and (:subject::text is null or subject = :subject)
             and (:entity_id::uuid is null or entity_id = :entity_id)
             and (:maturity::text is null or maturity = :maturity)
             and (:awaits_inversion::boolean is null or awaits_inversion = :awaits_inversion)
           order by created_at desc, id desc
           limit :max_counted
      ) newest
)
select case when grouping(scope) = 0 then 'scope' when grouping(permanence) = 0 then 'permanence'
            when grouping(provenance) = 0 then 'provenance' else 'total' end as facet,
       coalesce(scope, permanence, provenance, '') as value, count(*) as number
  from counted
 where has_rest and has_state
 group by grouping sets ((), (scope), (permanence), (provenance))
union all
select 'state', state, count(*) from counted where has_rest group by state
union all
(select 'tag', tag, count(*)
   from counted, jsonb_array_elements_text(tags) as tag
  where has_rest and has_state and tags <> '[]'
  group by tag
  order by count(*) desc, tag
  limit 12)
union all
select 'counted', '', count(*) from counted
order by 1, 3 desc, 2;

-- name: facts(tenant_id, ids, max_characters)
-- Facts as a list shows them.
select id, subject, predicate, left(content, :max_characters) as content, importance,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence,
       confidence as stored_confidence, decay_rate, last_confirmed_at, permanence, scope,
       case when validity = 'active' and metadata ->> 'status' = 'fading' then 'fading' else validity end as state,
       coalesce(metadata ->> 'provenance', 'direct') as provenance, reference_count, created_at, entity_id, tags
  from facts
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: rules(tenant_id, ids, max_characters)
-- Rules as a list shows them.
select id, left(content, :max_characters) as content, scope, maturity, permanence,
       effective_confidence(confidence, decay_rate, last_confirmed_at, now()) as confidence,
       effectiveness_score, applied_count, success_count, harmful_count, reference_count, created_at, tags,
       case when coalesce((metadata -> 'forgotten')::boolean, false) then 'forgotten'
            when metadata ->> 'status' = 'fading' then 'fading' else 'active' end as state,
       coalesce((metadata -> 'needs_inversion')::boolean, false) as awaits_inversion,
       coalesce(metadata ->> 'provenance', 'direct') as provenance
  from rules
 where tenant_id = :tenant_id
   and id = any (:ids::uuid[]);

-- name: rule_marks(tenant_id, ids, max_marks)
-- The latest marks of rules that were not undone, oldest first.
select r.id as rule_id, m.outcome, m.applied_at
  from unnest(:ids::uuid[]) as r (id),
       lateral (
           select coalesce(array_agg(u.payload ->> 'undone'), '{}') as requests
             from memory_events u
            where u.tenant_id = :tenant_id
              and u.entity_type = 'rule'
              and u.entity_id = r.id
              and u.payload ? 'undone'
       ) undone,
       lateral (
           select outcome, applied_at, id
             from rule_applications
            where tenant_id = :tenant_id
              and rule_id = r.id
              and coalesce(request_id <> all (undone.requests), true)
            order by applied_at desc
            limit :max_marks
       ) m
 order by m.applied_at, m.id;

-- name: episodes(tenant_id, butler, session_id, statuses, is_gone, from_time, from_id, is_backward, max_scanned, max_characters, max_rows)
-- Episodes, newest first, after or before a position. Gone: expired or forgotten.
select id, butler, session_id, left(content, :max_characters) as content, importance, consolidation_status,
       consolidation_attempts, left(last_consolidation_error, 200) as error, created_at, expires_at, state
  from (
      select *, case when metadata ? 'forgotten_until' then 'forgotten' when expires_at <= now() then 'expired'
                     else 'active' end as state
        from episodes
       where tenant_id = :tenant_id
         and (:butler::text is null or butler = :butler)
         and (:session_id::uuid is null or session_id = :session_id)
         and (:from_id::uuid is null
           or case when :is_backward::boolean then (created_at, id) > (:from_time::timestamptz, :from_id)
                   else (created_at, id) < (:from_time, :from_id) end)
       order by case when not :is_backward then created_at end desc, case when not :is_backward then id end desc,
                case when :is_backward then created_at end, case when :is_backward then id end
       limit :max_scanned
  ) scanned
 where (:statuses::text[] is null or consolidation_status = any (:statuses))
   and (:is_gone::boolean is null or (state <> 'active') = :is_gone)
 order by case when not :is_backward then created_at end desc, case when not :is_backward then id end desc,
          case when :is_backward then created_at end, case when :is_backward then id end
 limit :max_rows;

-- name: last_scanned_episode(tenant_id, butler, session_id, from_time, from_id, is_backward, max_scanned)^
-- The last of the rows that `episodes` looks at, if there are that many.
select created_at, id
  from (
      select created_at, id, row_number() over () as place
        from (
            select created_at, id
              from episodes
             where tenant_id = :tenant_id
               and (:butler::text is null or butler = :butler)
               and (:session_id::uuid is null or session_id = :session_id)
               and (:from_id::uuid is null
                 or case when :is_backward::boolean then (created_at, id) > (:from_time::timestamptz, :from_id)
                         else (created_at, id) < (:from_time, :from_id) end)
             order by case when not :is_backward then created_at end desc, case when not :is_backward then id end desc,
                      case when :is_backward then created_at end, case when :is_backward then id end
             limit :max_scanned
        ) scanned
  ) numbered
 where place = :max_scanned;

-- name: episode_facets(tenant_id, butler, session_id, statuses, is_gone, max_counted)
-- How many of the newest episodes match, in all and by each facet.
with scanned as (
    select butler, consolidation_status as status,
           metadata ? 'forgotten_until' or coalesce(expires_at <= now(), false) as is_gone
      from episodes
     where tenant_id = :tenant_id
       and (:butler::text is null or butler = :butler)
       and (:session_id::uuid is null or session_id = :session_id)
     order by created_at desc, id desc
     limit :max_counted
), matching as materialized (
    select butler, status, is_gone,
           (:statuses::text[] is null or status = any (:statuses)) as has_status,
           (:is_gone::boolean is null or is_gone = :is_gone) as has_gone
      from scanned
)
select 'butler' as facet, butler as value, count(*) as number from matching where has_status and has_gone group by butler
union all
select 'state', status, count(*) from matching where has_gone group by status
union all
select 'gone', case when is_gone then 'yes' else 'no' end, count(*) from matching where has_status group by is_gone
union all
select 'total', '', count(*) from matching where has_status and has_gone
union all
select 'counted', '', count(*) from matching
order by 1, 3 desc, 2;

-- name: entities_by_name(tenant_id, prefix, entity_type, from_name, from_id, is_backward, max_counted, max_rows)
-- Live entities whose name begins with a text, by name, with their live facts counted up to a maximum.
select e.id, e.canonical_name, e.entity_type, e.aliases, e.updated_at, null::text as merged_into,
       null::text as former_name, n.name as position,
       (select count(*) from (
            select from facts f
             where f.tenant_id = :tenant_id and f.entity_id = e.id and f.validity = 'active'
             limit :max_counted
        ) counted) as live_facts
  from list_entities_by_name(:prefix, :entity_type, :from_name, :from_id, :is_backward, :max_rows) n
  join entities e on e.tenant_id = :tenant_id and e.id = n.id
 order by n.name collate "C", e.id;

-- name: merged_entities(tenant_id, entity_type, from_time, from_id, is_backward, max_rows)
-- Entities that were merged into another one, the latest first.
select e.id, e.canonical_name, e.entity_type, e.aliases, e.updated_at, e.metadata ->> 'merged_into' as merged_into,
       e.metadata ->> 'former_name' as former_name, 0 as live_facts
  from entities e
 where e.tenant_id = :tenant_id
   and e.metadata ? 'merged_into'
   and (:entity_type::text is null or e.entity_type = :entity_type)
   and (:from_id::uuid is null
     or case when :is_backward::boolean then (e.updated_at, e.id) > (:from_time::timestamptz, :from_id)
             else (e.updated_at, e.id) < (:from_time, :from_id) end)
 order by case when not :is_backward then e.updated_at end desc, case when not :is_backward then e.id end desc,
          case when :is_backward then e.updated_at end, case when :is_backward then e.id end
 limit :max_rows;

-- name: entity_facets(tenant_id, max_counted)
-- How many entities there are by type and how many were merged, among so many of each.
select 'type' as facet, entity_type as value, count(*) as number
  from (
      select e.entity_type
        from entities e
       where e.tenant_id = :tenant_id
         and not (e.metadata ? 'merged_into')
       limit :max_counted
  ) live
 group by entity_type
union all
select 'merged', 'yes', count(*)
  from (
      select from entities e where e.tenant_id = :tenant_id and e.metadata ? 'merged_into' limit :max_counted
  ) merged
 order by 1, 3 desc, 2;

-- name: find_by_id(tenant_id, first_id, last_id, max_rows)
-- Memories and entities with an id in a range.
(select 'fact' as memory_type, id, subject || ' · ' || predicate as name
   from facts where tenant_id = :tenant_id and id between :first_id::uuid and :last_id::uuid limit :max_rows)
union all
(select 'rule', id, left(content, 200)
   from rules where tenant_id = :tenant_id and id between :first_id and :last_id limit :max_rows)
union all
(select 'episode', id, left(content, 200)
   from episodes where tenant_id = :tenant_id and id between :first_id and :last_id limit :max_rows)
union all
(select 'entity', id, coalesce(metadata ->> 'former_name', canonical_name)
   from entities where tenant_id = :tenant_id and id between :first_id and :last_id limit :max_rows)
limit :max_rows;
