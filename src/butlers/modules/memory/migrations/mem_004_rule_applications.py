"""Each time a rule was applied, and how that went."""

from alembic import op

from butlers.migrate import tenant_policies

revision = "mem_004"
down_revision = "mem_003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        create table rule_applications (
            tenant_id text not null,
            id uuid not null default gen_random_uuid(),
            rule_id uuid not null,
            outcome text not null,
            applied_at timestamptz not null default now(),
            actor text,
            session_id uuid,
            request_id text,
            context jsonb not null default '{}',
            constraint rule_applications_pkey primary key (tenant_id, id),
            constraint rule_applications_rule_fkey foreign key (tenant_id, rule_id)
                references rules (tenant_id, id) on delete cascade,
            constraint rule_applications_tenant_named check (tenant_id <> ''),
            constraint rule_applications_outcome_known check (outcome in ('helpful', 'harmful')),
            constraint rule_applications_context_object check (jsonb_typeof(context) = 'object')
        )
    """)
    op.execute("""
        create index rule_applications_by_rule on rule_applications (tenant_id, rule_id, applied_at desc)
    """)
    for statement in tenant_policies("rule_applications"):
        op.execute(statement)
    op.execute("comment on table rule_applications is 'One row for each helpful or harmful mark.'")


def downgrade() -> None:
    op.execute("drop table rule_applications")
