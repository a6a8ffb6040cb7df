"""What upkeep needs to find its work: which tenants there are, what is embedded by another version."""

from alembic import op

revision = "mem_010"
down_revision = "mem_009"
branch_labels = None
depends_on = "core_002"

TABLES = ("episodes", "facts", "rules")
KEPT = (*TABLES, "idempotency_keys")
# From one tenant straight to the next, by the index of the primary key: the rows in between are never read.
_TENANTS = """
                with recursive {table}_tenants as (
                    (select t.tenant_id from public.{table} t order by t.tenant_id limit 1)
                    union all
                    select (
                        select t.tenant_id from public.{table} t where t.tenant_id > s.tenant_id
                         order by t.tenant_id limit 1
                    )
                      from {table}_tenants s
                     where s.tenant_id is not null
                )
                select tenant_id from {table}_tenants where tenant_id is not null
"""


_CONFIDENCE = """
    create or replace function effective_confidence(
        confidence double precision, decay_rate double precision,
        last_confirmed_at timestamptz, at timestamptz
    )
    returns double precision
    language sql immutable parallel safe as $$
        select case
            when decay_rate {nothing} then confidence
            when last_confirmed_at is null then 0.0
            -- Next to nothing already; the server refuses to compute numbers much smaller.
            when confidence < 1e-200 then confidence
            else confidence * exp(-least(
                decay_rate * greatest(extract(epoch from at - last_confirmed_at)::double precision / 86400, 0),
                100
            ))
        end
    $$
"""


def upgrade() -> None:
    # A rate of next to nothing is none: the server refuses to multiply with it.
    op.execute(_CONFIDENCE.format(nothing="< 1e-200"))
    every = "\nunion\n".join(f"(select * from ({_TENANTS.format(table=each)}) {each})" for each in KEPT)  # noqa: S608
    op.execute(f"""
        create function memory_tenants() returns table (tenant_id text)
        language sql stable security definer set search_path = '' as $$
            {every}
            order by 1
        $$
    """)
    op.execute("comment on function memory_tenants() is 'Every tenant something is kept for; names only.'")
    for table in TABLES:
        op.execute(f"create index {table}_unembedded on {table} (tenant_id, id) where embedding_version_id is null")
    op.execute("""
        create index episodes_consolidated on episodes (tenant_id, created_at)
        where consolidation_status = 'consolidated'
    """)


def downgrade() -> None:
    op.execute(_CONFIDENCE.format(nothing="= 0"))
    op.execute("drop index episodes_consolidated")
    for table in reversed(TABLES):
        op.execute(f"drop index {table}_unembedded")
    op.execute("drop function memory_tenants()")
