"""The host's tables on the Alembic branch `core`: sessions, keys, logins, job runs, leases, idempotency keys."""

from pathlib import Path

from butlers.migrate import Branch

CORE = Branch(
    label="core",
    location=Path(__file__).parent,
    head="core_008",
    rights={
        "table alembic_version": "select",
        "function current_tenant()": "execute",
        "function enable_tenant_isolation(regclass, boolean)": "",
        "table sessions": "select, insert, update, delete",
        "table job_runs": "select, insert, update, delete",
        "table leases": "select, insert, update, delete",
        "function require_lease(text, uuid)": "execute",
        "table rate_budgets": "select, insert, update, delete",
        "function lease_calls(text, double precision, double precision, double precision)": "execute",
        "table idempotency_keys": "select, insert, update, delete",
        # The owner administers keys; the application looks one up by its id and sees no others.
        "table api_keys": "",
        "function find_api_key(uuid)": "execute",
        "table browser_sessions": "select, insert, update, delete",
        "function find_browser_session(bytea)": "execute",
        # For butlers of the release before core_005, which serve on while this one migrates.
        "function api_key(uuid)": "execute",
        "function browser_session(bytea)": "execute",
        "function latest_job_runs()": "execute",
        "function unfinished_sessions(text)": "execute",
    },
)
