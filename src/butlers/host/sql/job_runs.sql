-- name: settled(tenant_id, job, now, most_attempts)$
-- The latest moment of this job that needs no further run: it succeeded, was tried often enough, or came before all that are known. Moments to come are from a clock that was wrong.
select coalesce(
           max(scheduled_for) filter (where status = 'succeeded' or attempt >= :most_attempts),
           min(scheduled_for) - interval '1 second'
       )
  from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and scheduled_for <= :now;

-- name: attempts(tenant_id, job, moment)^
-- How often a moment of this job was tried, and how many seconds ago the last of these ended.
select count(*) as attempts, extract(epoch from now() - max(finished_at))::double precision as ago
  from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and scheduled_for = :moment;

-- name: give_up_lost(tenant_id, job)!
-- Runs whose process is gone: whoever holds the job's lock knows that nobody else is running it.
update job_runs
   set status = 'lost', finished_at = now(), error = 'the process that ran it ended'
 where tenant_id = :tenant_id
   and job = :job
   and status = 'running';

-- name: forget_old(tenant_id, job, days)!
-- Drops runs of this job from long ago, but the latest by the clock: what was missed since is still to be caught up.
delete from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and started_at < now() - make_interval(days => :days)
   and (scheduled_for is null
        or scheduled_for < (select max(scheduled_for) from job_runs where tenant_id = :tenant_id and job = :job));

-- name: start(tenant_id, job, scheduled_for, attempt)$
-- A run that begins now.
insert into job_runs (tenant_id, job, scheduled_for, attempt, status)
values (:tenant_id, :job, :scheduled_for, :attempt, 'running')
returning id;

-- name: finish(tenant_id, id, status, result, error)!
-- How a run that is still running ended.
update job_runs
   set status = :status, finished_at = now(), result = :result, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status = 'running';

-- name: latest()
-- The latest run of each job, in all tenants.
select job, scheduled_for, started_at, finished_at, status, attempt, result, error, succeeded_at
  from latest_job_runs();
