-- name: begin(tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id, instance, status)!
-- A session that starts now, or waits for its turn.
insert into sessions (
    tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id, instance, status
)
values (
    :tenant_id, :id, :butler, :trigger_source, :prompt, :runtime, :internal, :actor, :request_id, :instance, :status
);

-- name: start(tenant_id, id)!
-- The turn of a session that waited has come.
update sessions
   set status = 'running', started_at = now()
 where tenant_id = :tenant_id
   and id = :id
   and status = 'waiting';

-- name: finish(tenant_id, id, status, runtime_session_id, usage, answer, error)!
-- How a session ended that is under way, or was given up too early.
update sessions
   set status = :status, finished_at = now(), runtime_session_id = :runtime_session_id, usage = :usage,
       answer = :answer, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status in ('waiting', 'running', 'lost');

-- name: get(tenant_id, id)^
-- One session.
select id, butler, trigger_source, status, answer, error, usage, started_at, finished_at
  from sessions
 where tenant_id = :tenant_id
   and id = :id;

-- name: unfinished(butler)
-- Which processes have sessions of a butler under way, in which tenants.
select tenant_id, instance from unfinished_sessions(:butler);

-- name: give_up_lost(tenant_id, butler, instance)
-- Sessions of a process that is gone.
update sessions
   set status = 'lost', finished_at = now(), error = 'the butler that ran it ended'
 where tenant_id = :tenant_id
   and butler = :butler
   and instance is not distinct from :instance
   and status in ('waiting', 'running')
returning id;
