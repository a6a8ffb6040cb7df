"""Consolidation: a record of each batch a model was given, and what waits for one, in all tenants."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "mem_009"
down_revision = "mem_008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _runs()
    op.execute("""
        create index episodes_failed on episodes (tenant_id, butler, created_at)
        where consolidation_status = 'failed'
    """)
    op.execute("create index episodes_leased on episodes (tenant_id, butler) where lease_token is not null")
    _groups()
    op.execute("drop function memory_backlog()")
    _backlog()


def downgrade() -> None:
    op.execute("drop function memory_backlog()")
    op.execute("""
        create function memory_backlog(
            out pending bigint, out oldest_pending timestamptz, out dead_letter bigint
        )
        language sql stable security definer set search_path = '' as $$
            select (select count(*) from public.episodes where consolidation_status = 'pending'),
                   (select min(created_at) from public.episodes where consolidation_status = 'pending'),
                   (select count(*) from public.episodes where consolidation_status = 'dead_letter')
        $$
    """)
    op.execute("""
        comment on function memory_backlog() is
        'How much waits to be consolidated, counted over all tenants; counts only.'
    """)
    op.execute("drop function consolidation_groups(bigint)")
    op.execute("drop index episodes_leased")
    op.execute("drop index episodes_failed")
    op.execute("drop table consolidation_runs")


def _runs() -> None:
    op.execute(r"""
        create table consolidation_runs (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            butler text not null,
            lease_token uuid not null,
            session_id uuid,
            status text not null default 'running',
            started_at timestamptz not null default now(),
            finished_at timestamptz,
            episodes integer not null default 0,
            facts_created integer not null default 0,
            facts_updated integer not null default 0,
            rules_created integer not null default 0,
            confirmed integer not null default 0,
            errors jsonb not null default '[]',
            parse_errors jsonb not null default '[]',
            input_tokens bigint not null default 0,
            output_tokens bigint not null default 0,
            tokens_estimated boolean not null default false,
            error text,
            constraint consolidation_runs_pkey primary key (tenant_id, id),
            constraint consolidation_runs_tenant_named check (tenant_id <> ''),
            constraint consolidation_runs_butler_not_blank check (butler ~ '\S'),
            constraint consolidation_runs_status_known
                check (status in ('running', 'succeeded', 'failed', 'released', 'lost')),
            constraint consolidation_runs_counted check (
                least(episodes, facts_created, facts_updated, rules_created, confirmed) >= 0
                and least(input_tokens, output_tokens) >= 0
            ),
            constraint consolidation_runs_errors_array check (jsonb_typeof(errors) = 'array'),
            constraint consolidation_runs_parse_errors_array check (jsonb_typeof(parse_errors) = 'array')
        )
    """)
    op.execute("create index consolidation_runs_by_time on consolidation_runs (tenant_id, started_at desc)")
    op.execute("""
        create index consolidation_runs_running on consolidation_runs (tenant_id, butler) where status = 'running'
    """)
    for statement in tenant_policies("consolidation_runs"):
        op.execute(statement)
    op.execute("comment on table consolidation_runs is 'One row for each batch of episodes a model was given.'")
    op.execute("""
        comment on column consolidation_runs.status is
        'released: given back untouched, the batch waits again; lost: its worker ended without a word.'
    """)
    op.execute("comment on column consolidation_runs.errors is 'Actions that could not be applied, and why.'")
    op.execute(
        "comment on column consolidation_runs.parse_errors is 'Parts of the answer that were dropped, and why.'"
    )
    op.execute("""
        comment on column consolidation_runs.tokens_estimated is
        'Whether the runtime did not say what it took, so that the tokens were counted here.'
    """)


def _groups() -> None:
    op.execute("""
        create function consolidation_groups(most bigint)
        returns table (
            tenant_id text, butler text, waiting bigint, retries bigint, oldest timestamptz, first_expiry timestamptz
        )
        language sql stable security definer set search_path = '' as $$
            select e.tenant_id, e.butler, count(*), count(*) filter (where e.consolidation_status = 'failed'),
                   min(e.created_at), min(e.expires_at)
              from public.episodes e
             where e.consolidation_status in ('pending', 'failed')
               and (e.expires_at is null or e.expires_at > now())
               and (e.next_consolidation_retry_at is null or e.next_consolidation_retry_at <= now())
               and (e.leased_until is null or e.leased_until <= now())
             group by e.tenant_id, e.butler
             order by min(e.expires_at), min(e.created_at), e.tenant_id, e.butler
             limit most
        $$
    """)
    op.execute("""
        comment on function consolidation_groups(bigint) is
        'Who has episodes that wait to be consolidated, in all tenants, the closest to expiry first; no content.'
    """)


def _backlog() -> None:
    op.execute("""
        create function memory_backlog(
            out pending bigint, out failed bigint, out oldest_pending timestamptz, out dead_letter bigint
        )
        language sql stable security definer set search_path = '' as $$
            with waiting as (
                select count(*) as episodes, min(e.created_at) as oldest
                  from public.episodes e
                 where e.consolidation_status = 'pending'
                   and (e.expires_at is null or e.expires_at > now())
            ), tried as (
                select count(*) as episodes, min(e.created_at) as oldest
                  from public.episodes e
                 where e.consolidation_status = 'failed'
                   and (e.expires_at is null or e.expires_at > now())
            )
            select waiting.episodes, tried.episodes, least(waiting.oldest, tried.oldest),
                   (select count(*) from public.episodes where consolidation_status = 'dead_letter')
              from waiting, tried
        $$
    """)
    op.execute("""
        comment on function memory_backlog() is
        'How much waits to be consolidated, counted over all tenants; counts only.'
    """)
