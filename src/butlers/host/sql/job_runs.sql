-- name: last_scheduled(tenant_id, job)$
-- The latest moment a run of this job was for, however it ended.
select max(scheduled_for)
  from job_runs
 where tenant_id = :tenant_id
   and job = :job;

-- name: give_up_lost(tenant_id, job)!
-- Runs whose process is gone: whoever holds the job's lock knows that nobody else is running it.
update job_runs
   set status = 'lost', finished_at = now(), error = 'the process that ran it ended'
 where tenant_id = :tenant_id
   and job = :job
   and status = 'running';

-- name: start(tenant_id, job, scheduled_for)$
-- A run that begins now.
insert into job_runs (tenant_id, job, scheduled_for, status)
values (:tenant_id, :job, :scheduled_for, 'running')
returning id;

-- name: finish(tenant_id, id, status, result, error)!
-- How a run that is still running ended.
update job_runs
   set status = :status, finished_at = now(), result = :result, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status = 'running';
