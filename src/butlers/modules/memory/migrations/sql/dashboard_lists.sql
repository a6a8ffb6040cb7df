-- Indexes of the dashboard's lists. None has a column that a recall or a confirmation changes, so these stay
-- heap-only updates. The comparisons of plain columns are leakproof: row-level security lets the index do them.

create index facts_by_time on facts (tenant_id, created_at desc, id desc);
create index facts_by_permanence on facts (tenant_id, permanence, created_at, id) where validity = 'active';
create index rules_by_time on rules (tenant_id, created_at desc, id desc);
create index rules_by_maturity_and_time on rules (tenant_id, maturity, created_at desc, id desc);
create index rules_awaiting_inversion on rules (tenant_id, created_at desc, id desc)
    where coalesce((metadata -> 'needs_inversion')::boolean, false);
create index episodes_by_time on episodes (tenant_id, created_at desc, id desc);
create index entities_merged on entities (tenant_id, updated_at desc, id desc) where metadata ? 'merged_into';

-- Two branches, one for each direction: a plan reads the index in one order only. The comparison of normalised names
-- is not leakproof, so the function reads as its owner, within the caller's tenant. The bounds are subqueries and not
-- a join, and there are no bitmap scans: so the index does the comparison, keeps the order and stops at the last row.
create function list_entities_by_name(
    prefix text, wanted_type text, from_name text, from_id uuid, is_backward boolean, max_rows bigint
)
returns table (id uuid, name text)
language sql stable security definer rows 50
set search_path = public, pg_catalog set enable_bitmapscan = off as $$
    (select e.id, split_part(e.names, chr(31), 1) collate "C"
       from entities e
      where not is_backward
        and e.tenant_id = (select current_tenant())
        and not (e.metadata ? 'merged_into')
        and (wanted_type is null or e.entity_type = wanted_type)
        and split_part(e.names, chr(31), 1) collate "C" >= (
            select greatest(normalized_name(prefix) collate "C", from_name collate "C")
        )
        and split_part(e.names, chr(31), 1) collate "C" < (select normalized_name(prefix) || chr(1114111))
        and (from_id is null or (split_part(e.names, chr(31), 1) collate "C", e.id) > (from_name, from_id))
      order by split_part(e.names, chr(31), 1) collate "C", e.id
      limit max_rows)
    union all
    (select e.id, split_part(e.names, chr(31), 1) collate "C"
       from entities e
      where is_backward
        and e.tenant_id = (select current_tenant())
        and not (e.metadata ? 'merged_into')
        and (wanted_type is null or e.entity_type = wanted_type)
        and split_part(e.names, chr(31), 1) collate "C" >= (select normalized_name(prefix))
        and split_part(e.names, chr(31), 1) collate "C" <= (
            select least((normalized_name(prefix) || chr(1114111)) collate "C", from_name collate "C")
        )
        and (split_part(e.names, chr(31), 1) collate "C", e.id) < (from_name, from_id)
      order by split_part(e.names, chr(31), 1) collate "C" desc, e.id desc
      limit max_rows)
$$;
comment on function list_entities_by_name(text, text, text, uuid, boolean, bigint) is
    'Live entities whose name begins with a text, by name, after or before a position; the name is normalised.';
