-- name: claim_key(tenant_id, key, tool, arguments_hash)$
-- Claims an idempotency key; waits for a call that is using it.
insert into idempotency_keys (tenant_id, key, tool, arguments_hash)
values (:tenant_id, :key, :tool, :arguments_hash)
on conflict do nothing
returning key;

-- name: stored_answer(tenant_id, key)^
-- The tool, arguments and answer of a key.
select tool, arguments_hash, answer
  from idempotency_keys
 where tenant_id = :tenant_id
   and key = :key;

-- name: store_answer(tenant_id, key, answer)!
-- Stores the answer of the first call with a key.
update idempotency_keys
   set answer = :answer
 where tenant_id = :tenant_id
   and key = :key;
