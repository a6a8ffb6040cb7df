-- name: claim_key(tenant_id, key, tool, arguments_hash)$
-- Claims an idempotency key; waits for a call that is using it.
insert into idempotency_keys (tenant_id, key, tool, arguments_hash)
values (:tenant_id, :key, :tool, :arguments_hash)
on conflict do nothing
returning key;

-- name: stored_answer(tenant_id, key)^
-- The tool, arguments and answer of a key. With synchronous replication it writes a message to the log: the commit then waits for a standby, and what was stored before is replicated as well.
select tool, arguments_hash, answer,
       case when current_setting('synchronous_standby_names') <> ''
            then pg_logical_emit_message(true, 'butlers', 'repeated')::text
       end as replicated_at
  from idempotency_keys
 where tenant_id = :tenant_id
   and key = :key;

-- name: store_answer(tenant_id, key, answer)!
-- Stores the answer of the first call with a key.
update idempotency_keys
   set answer = :answer
 where tenant_id = :tenant_id
   and key = :key;
