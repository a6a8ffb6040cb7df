-- name: find_key(key_id)^
-- One key by its id, before a tenant is known. The function returns one row at most.
select tenant_id, id, actor, roles, elevated, secret_hash, expires_at, revoked_at
  from find_api_key(:key_id);

-- name: insert_key(tenant, id, actor, roles, elevated, secret_hash, expires_at)!
-- Insert a key. Only the hash of its secret is stored.
insert into api_keys (tenant_id, id, actor, roles, elevated, secret_hash, expires_at)
values (:tenant, :id, :actor, :roles, :elevated, :secret_hash, :expires_at);

-- name: list_keys()
-- All keys of all tenants, newest first, without their hashes.
select tenant_id as tenant, id, actor, roles, elevated, created_at, expires_at, revoked_at
  from api_keys
 order by created_at desc, id;

-- name: revoke_key(id)^
-- Revoke a key that is not revoked yet.
update api_keys
   set revoked_at = now()
 where id = :id
   and revoked_at is null
returning tenant_id, id, actor, revoked_at;
