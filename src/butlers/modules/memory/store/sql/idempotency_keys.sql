-- name: claim(tenant_id, key, tool, arguments_hash)$
-- Takes an idempotency key; waits for whoever is using it at this moment.
insert into idempotency_keys (tenant_id, key, tool, arguments_hash)
values (:tenant_id, :key, :tool, :arguments_hash)
on conflict do nothing
returning key;

-- name: answer_of(tenant_id, key)^
-- What a key was used for and what the answer was.
select tool, arguments_hash, answer
  from idempotency_keys
 where tenant_id = :tenant_id
   and key = :key;

-- name: keep_answer(tenant_id, key, answer)!
-- What the first call with this key answered.
update idempotency_keys
   set answer = :answer
 where tenant_id = :tenant_id
   and key = :key;
