-- name: find_session(token_hash, idle_seconds)^
-- A session or ticket by its token, before a tenant is known; no row once it expired or was idle for too long.
select tenant_id, id, is_ticket, actor, roles, elevated, key_id, last_seen_at
  from find_browser_session(:token_hash)
 where expires_at > now()
   and last_seen_at > now() - make_interval(secs => :idle_seconds);

-- name: insert_session(tenant, token_hash, is_ticket, actor, roles, elevated, key_id, expires_at)!
-- Insert a session or a ticket.
insert into browser_sessions (tenant_id, token_hash, is_ticket, actor, roles, elevated, key_id, expires_at)
values (:tenant, :token_hash, :is_ticket, :actor, :roles, :elevated, :key_id, :expires_at);

-- name: redeem_ticket(tenant_id, token_hash)^
-- Delete a ticket that is still valid; of two that try at once one gets the row.
delete from browser_sessions
 where tenant_id = :tenant_id
   and token_hash = :token_hash
   and is_ticket
   and expires_at > now()
returning actor, roles, elevated;

-- name: touch_session(tenant_id, id)!
-- Note that a session was used.
update browser_sessions set last_seen_at = now() where tenant_id = :tenant_id and id = :id;

-- name: end_session(tenant_id, id)^
-- End a session.
delete from browser_sessions where tenant_id = :tenant_id and id = :id returning id;

-- name: list_sessions(tenant_id, idle_seconds)
-- The open sessions of a tenant, the last used first.
select id, actor, roles, elevated, key_id, created_at, last_seen_at, expires_at
  from browser_sessions
 where tenant_id = :tenant_id
   and not is_ticket
   and expires_at > now()
   and last_seen_at > now() - make_interval(secs => :idle_seconds)
 order by last_seen_at desc, id
 limit 100;

-- name: delete_ended(tenant_id, idle_seconds)!
-- Delete sessions and tickets that expired or were idle for too long.
delete from browser_sessions
 where tenant_id = :tenant_id
   and (expires_at <= now() or last_seen_at <= now() - make_interval(secs => :idle_seconds));
