"""The host's tables, on the Alembic branch `core`: sessions, API keys, job runs, idempotency keys."""

from pathlib import Path

from butlers.migrate import Branch

CORE = Branch(
    label="core",
    location=Path(__file__).parent,
    head="core_004",
    rights={
        "table alembic_version": "select",
        "function current_tenant()": "execute",
        "table sessions": "select, insert, update, delete",
        "table job_runs": "select, insert, update, delete",
        "table idempotency_keys": "select, insert, update, delete",
        # Keys are administered by the owner; the application looks one up by its id and sees no others.
        "table api_keys": "",
        "function api_key(uuid)": "execute",
        "function latest_job_runs()": "execute",
        "function unfinished_sessions(text)": "execute",
    },
)
