-- name: claim_lease(tenant_id, name, token, seconds)^
-- Take a lease that nobody holds, or whose holder has not renewed it in time.
insert into leases (tenant_id, name, token, expires_at)
values (:tenant_id, :name, :token, clock_timestamp() + make_interval(secs => :seconds))
on conflict (tenant_id, name) do update
   set token = excluded.token, expires_at = excluded.expires_at
 where leases.expires_at < clock_timestamp()
returning name;

-- name: renew_lease(tenant_id, name, token, seconds)^
-- Renew a lease that nobody has taken over.
update leases
   set expires_at = clock_timestamp() + make_interval(secs => :seconds)
 where tenant_id = :tenant_id
   and name = :name
   and token = :token
returning name;

-- name: release_lease(tenant_id, name, token)!
-- Release a lease that nobody has taken over.
delete from leases
 where tenant_id = :tenant_id
   and name = :name
   and token = :token;
