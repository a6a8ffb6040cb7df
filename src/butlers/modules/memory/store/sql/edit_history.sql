-- name: remember(tenant_id, request_id, record_type, record_id, before, after)!
-- Keeps the words that an edit replaced. A second edit in the same request keeps the words before the first.
insert into edit_history (tenant_id, request_id, record_type, record_id, before, after)
values (:tenant_id, :request_id, :record_type, :record_id, :before, :after)
on conflict (tenant_id, request_id, record_type, record_id) do update
   set before = excluded.before || edit_history.before, after = edit_history.after || excluded.after;

-- name: of_request(tenant_id, request_id)
-- The words that the edits of a request replaced.
select record_type, record_id, before, after
  from edit_history
 where tenant_id = :tenant_id
   and request_id = :request_id;

-- name: delete_of_request(tenant_id, request_id)!
-- Deletes what an undo has used.
delete from edit_history where tenant_id = :tenant_id and request_id = :request_id;
