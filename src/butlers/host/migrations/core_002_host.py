"""What the host keeps: sessions, API keys, job runs, and answers to repeat."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "core_002"
down_revision = "core_001"
branch_labels = None
depends_on = None

TABLES = ("sessions", "api_keys", "job_runs", "idempotency_keys")


def upgrade() -> None:
    _sessions()
    _api_keys()
    _job_runs()
    _idempotency_keys()
    for table in TABLES:
        for statement in tenant_policies(table, owner_administers=table == "api_keys"):
            op.execute(statement)
    _api_key_lookup()


def downgrade() -> None:
    op.execute("drop function api_key(uuid)")
    for table in reversed(TABLES):
        op.execute(f"drop table {table}")


def _sessions() -> None:
    op.execute(r"""
        create table sessions (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            butler text not null,
            trigger_source text not null,
            prompt text not null,
            runtime text not null,
            status text not null default 'running',
            internal boolean not null default false,
            actor text,
            request_id text,
            runtime_session_id text,
            usage jsonb not null default '{}',
            error text,
            started_at timestamptz not null default now(),
            finished_at timestamptz,
            constraint sessions_pkey primary key (tenant_id, id),
            constraint sessions_tenant_named check (tenant_id <> ''),
            constraint sessions_butler_not_blank check (butler ~ '\S'),
            constraint sessions_status_known
                check (status in ('running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'lost')),
            constraint sessions_usage_object check (jsonb_typeof(usage) = 'object')
        )
    """)
    op.execute("create index sessions_by_butler on sessions (tenant_id, butler, started_at desc)")
    op.execute("create index sessions_running on sessions (tenant_id, butler) where status = 'running'")
    op.execute("comment on table sessions is 'One row for each run of a butler''s runtime.'")
    op.execute("""
        comment on column sessions.trigger_source is 'What started it: a person, a schedule, a job.'
    """)
    op.execute("""
        comment on column sessions.internal is 'Started by the system for itself; leaves no episode.'
    """)
    op.execute("""
        comment on column sessions.runtime_session_id is 'The runtime''s own id for it, to find its logs by.'
    """)
    op.execute("""
        comment on column sessions.status is 'lost: its process ended without saying how the session did.'
    """)


def _api_keys() -> None:
    op.execute("""
        create table api_keys (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            actor text not null,
            roles text[] not null default '{}',
            elevated boolean not null default false,
            secret_hash bytea not null,
            created_at timestamptz not null default now(),
            expires_at timestamptz,
            revoked_at timestamptz,
            constraint api_keys_pkey primary key (tenant_id, id),
            constraint api_keys_tenant_named check (tenant_id <> ''),
            constraint api_keys_secret_hash_length check (octet_length(secret_hash) = 32)
        )
    """)
    # The one lookup that can't know its tenant: the key is what says which tenant the caller has.
    op.execute("create index api_keys_by_id on api_keys (id)")
    op.execute("""
        comment on table api_keys is 'Who may call over HTTP; the application reads it by api_key() alone.'
    """)
    op.execute("comment on column api_keys.secret_hash is 'SHA-256 of the secret; the secret is kept nowhere.'")
    op.execute("""
        comment on column api_keys.elevated is 'Together with the role admin: may act inside other tenants.'
    """)


def _job_runs() -> None:
    op.execute(r"""
        create table job_runs (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            job text not null,
            scheduled_for timestamptz,
            started_at timestamptz not null default now(),
            finished_at timestamptz,
            status text not null default 'running',
            attempt integer not null default 1,
            result jsonb not null default '{}',
            error text,
            constraint job_runs_pkey primary key (tenant_id, id),
            constraint job_runs_tenant_named check (tenant_id <> ''),
            constraint job_runs_job_not_blank check (job ~ '\S'),
            constraint job_runs_status_known
                check (status in ('running', 'succeeded', 'failed', 'skipped', 'lost')),
            constraint job_runs_attempt_counted check (attempt >= 1),
            constraint job_runs_result_object check (jsonb_typeof(result) = 'object')
        )
    """)
    op.execute("create index job_runs_by_job on job_runs (tenant_id, job, started_at desc)")
    op.execute("comment on table job_runs is 'One row for each run of a scheduled job.'")
    op.execute("comment on column job_runs.scheduled_for is 'The time its cron named; null when run by hand.'")


def _idempotency_keys() -> None:
    op.execute("""
        create table idempotency_keys (
            tenant_id text not null,
            key text not null,
            tool text not null,
            arguments_hash bytea not null,
            answer jsonb,
            created_at timestamptz not null default now(),
            constraint idempotency_keys_pkey primary key (tenant_id, key),
            constraint idempotency_keys_tenant_named check (tenant_id <> ''),
            constraint idempotency_keys_key_length check (length(key) between 1 and 200)
        )
    """)
    op.execute("create index idempotency_keys_by_age on idempotency_keys (tenant_id, created_at)")
    op.execute("""
        comment on table idempotency_keys is 'What a call with this key answered, for when it is sent again.'
    """)
    op.execute("""
        comment on column idempotency_keys.arguments_hash is
        'Tells the same call sent again from another call under the same key.'
    """)


def _api_key_lookup() -> None:
    op.execute("""
        create function api_key(wanted uuid) returns setof api_keys
        language sql stable security definer rows 1 set search_path = ''
        as $$ select * from public.api_keys where id = wanted $$
    """)
    op.execute("""
        comment on function api_key(uuid) is
        'The key of that id, whichever tenant it belongs to; no row when there is none.'
    """)
