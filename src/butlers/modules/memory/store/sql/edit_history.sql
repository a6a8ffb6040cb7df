-- name: remember(tenant_id, request_id, record_type, record_ids, before, after)!
-- Keeps the words that edits replaced. A second edit in the same request keeps the words before the first.
insert into edit_history (tenant_id, request_id, record_type, record_id, before, after)
select :tenant_id, :request_id, :record_type, w.*
  from unnest(:record_ids::uuid[], :before::jsonb[], :after::jsonb[]) as w (record_id, before, after)
on conflict (tenant_id, request_id, record_type, record_id) do update
   set before = excluded.before || edit_history.before, after = edit_history.after || excluded.after;

-- name: of_records(tenant_id, request_id, record_type, record_ids)
-- The words that the edits of a request replaced in these records.
select record_id, before, after
  from edit_history
 where tenant_id = :tenant_id
   and request_id = :request_id
   and record_type = :record_type
   and record_id = any (:record_ids::uuid[]);
