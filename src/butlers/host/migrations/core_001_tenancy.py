"""The tenant of a transaction: what every policy of every table asks for."""

from alembic import op

revision = "core_001"
down_revision = None
branch_labels = ("core",)
depends_on = None


def upgrade() -> None:
    op.execute("""
        create function current_tenant() returns text language plpgsql stable set search_path = '' as $$
        declare
            tenant text := nullif(current_setting('app.tenant_id', true), '');
        begin
            -- On a connection that has served a tenant before, the setting reads as '' and not as null.
            if tenant is null then
                raise exception 'tenant context is not set' using errcode = '42501';
            end if;
            return tenant;
        end $$
    """)
    op.execute("""
        comment on function current_tenant() is
        'The tenant this transaction works for (app.tenant_id); fails where none is set.'
    """)


def downgrade() -> None:
    op.execute("drop function current_tenant()")
