-- name: latest_runs()
-- The latest run of each job, in all tenants.
select job, scheduled_for, started_at, finished_at, status, attempt, error, succeeded_at
  from latest_job_runs();
