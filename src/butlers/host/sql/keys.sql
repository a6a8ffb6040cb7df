-- name: find(wanted)^
-- The key of that id, before a tenant is known; the function shows one row and nothing else.
select tenant_id, id, actor, roles, elevated, secret_hash, expires_at, revoked_at
  from api_key(:wanted);

-- name: insert(tenant_id, id, actor, roles, elevated, secret_hash, expires_at)!
-- A new key. Only the hash of its secret is kept.
insert into api_keys (tenant_id, id, actor, roles, elevated, secret_hash, expires_at)
values (:tenant_id, :id, :actor, :roles, :elevated, :secret_hash, :expires_at);

-- name: everyone()
-- Every key of every tenant, newest first, without its hash.
select tenant_id, id, actor, roles, elevated, created_at, expires_at, revoked_at
  from api_keys
 order by created_at desc, id;

-- name: revoke(id)^
-- Ends a key that has not ended yet.
update api_keys
   set revoked_at = now()
 where id = :id
   and revoked_at is null
returning tenant_id, id, actor, revoked_at;
