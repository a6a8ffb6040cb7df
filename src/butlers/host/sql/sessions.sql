-- name: begin(tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id)!
-- A session that starts now.
insert into sessions (tenant_id, id, butler, trigger_source, prompt, runtime, internal, actor, request_id)
values (:tenant_id, :id, :butler, :trigger_source, :prompt, :runtime, :internal, :actor, :request_id);

-- name: finish(tenant_id, id, status, runtime_session_id, usage, error)!
-- How a session that is still running ended.
update sessions
   set status = :status, finished_at = now(), runtime_session_id = :runtime_session_id, usage = :usage, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status = 'running';
