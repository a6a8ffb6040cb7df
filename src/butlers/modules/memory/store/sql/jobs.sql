-- name: latest()
-- The latest run of each job, whichever tenant the butler that ran it belongs to.
select job, scheduled_for, started_at, finished_at, status, attempt, error, succeeded_at
  from latest_job_runs();
