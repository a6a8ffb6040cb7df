-- name: last_completed(tenant_id, job, now, max_attempts)$
-- Latest scheduled time of the job that needs no further run: it succeeded, used up its attempts, or lies before every recorded time. Future times are ignored: they come from a wrong clock.
select coalesce(
           max(scheduled_for) filter (where status = 'succeeded' or attempt >= :max_attempts),
           min(scheduled_for) - interval '1 second'
       )
  from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and scheduled_for <= :now;

-- name: count_attempts(tenant_id, job, scheduled_for)^
-- Number of attempts for one scheduled time, and the seconds since the last of them finished.
select count(*) as attempts, extract(epoch from now() - max(finished_at))::double precision as ago
  from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and scheduled_for = :scheduled_for;

-- name: mark_lost(tenant_id, job)!
-- Mark runs of processes that are gone. The caller holds the job's lease, so no other process is running the job.
update job_runs
   set status = 'lost', finished_at = now(), error = 'the process that ran it ended'
 where tenant_id = :tenant_id
   and job = :job
   and status = 'running';

-- name: delete_old(tenant_id, job, days)!
-- Delete old runs of the job, except the latest scheduled one: missed times are counted from it.
delete from job_runs
 where tenant_id = :tenant_id
   and job = :job
   and started_at < now() - make_interval(days => :days)
   and (scheduled_for is null
        or scheduled_for < (select max(scheduled_for) from job_runs where tenant_id = :tenant_id and job = :job));

-- name: insert_run(tenant_id, job, scheduled_for, attempt)$
-- Insert a run that starts now.
insert into job_runs (tenant_id, job, scheduled_for, attempt, status)
values (:tenant_id, :job, :scheduled_for, :attempt, 'running')
returning id;

-- name: finish_run(tenant_id, id, status, result, error)!
-- Set the outcome of a running run.
update job_runs
   set status = :status, finished_at = now(), result = :result, error = :error
 where tenant_id = :tenant_id
   and id = :id
   and status = 'running';

-- name: latest_runs()
-- Latest run of each job, in all tenants.
select job, scheduled_for, started_at, finished_at, status, attempt, result, error, succeeded_at
  from latest_job_runs();
