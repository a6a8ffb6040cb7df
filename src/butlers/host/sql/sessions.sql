-- name: insert_session(tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id, instance, status)!
-- Insert a session that starts now or waits in the queue.
insert into sessions (
    tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id, instance, status
)
values (
    :tenant_id, :id, :butler, :trigger_source, :prompt, :runtime, :internal, :actor, :request_id, :instance, :status
);

-- name: start_session(tenant_id, id)!
-- Mark a waiting session as running.
update sessions
   set status = 'running', started_at = now()
 where tenant_id = :tenant_id
   and id = :id
   and status = 'waiting';

-- name: finish_session(tenant_id, id, status, runtime_session_id, usage, tools, answer, error)!
-- Set the outcome of an unfinished session, or of one that was marked as lost too early.
update sessions
   set status = :status, finished_at = now(), runtime_session_id = :runtime_session_id, usage = :usage,
       tools = :tools, answer = :answer, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status in ('waiting', 'running', 'lost');

-- name: get_session(tenant_id, id)^
-- One session.
select id, butler, trigger_source, status, answer, error, usage, started_at, finished_at
  from sessions
 where tenant_id = :tenant_id
   and id = :id;

-- name: unfinished_instances(butler)
-- Processes with unfinished sessions of a butler, by tenant.
select tenant_id, instance from unfinished_sessions(:butler);

-- name: mark_lost(tenant_id, butler, instance)
-- Mark the unfinished sessions of a process that is gone.
update sessions
   set status = 'lost', finished_at = now(), error = 'the butler that ran it ended'
 where tenant_id = :tenant_id
   and butler = :butler
   and instance is not distinct from :instance
   and status in ('waiting', 'running')
returning id;
