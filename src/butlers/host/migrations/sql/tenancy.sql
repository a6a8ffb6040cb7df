-- Tenant isolation: the tenant of a transaction, and the policies that every table with a tenant gets.

create or replace function current_tenant() returns text
language plpgsql stable set search_path = '' as $$
declare
    tenant text := nullif(current_setting('app.tenant_id', true), '');
begin
    -- A connection that served a tenant before reads the setting as '' and not as null.
    if tenant is null then
        raise exception 'tenant context is not set' using errcode = '42501';
    end if;
    return tenant;
end $$;
comment on function current_tenant() is
    'The tenant of this transaction (app.tenant_id); raises an error where none is set.';

create or replace function enable_tenant_isolation(target regclass, owner_writes boolean default false)
returns void
language plpgsql set search_path = public, pg_catalog as $$
begin
    execute format('alter table %s enable row level security', target);
    execute format('alter table %s force row level security', target);
    execute format($policy$
        create policy tenant_isolation on %s
            using (tenant_id = (select current_tenant()))
            with check (tenant_id = (select current_tenant()))
    $policy$, target);
    -- The owner reads across tenants, so that its SECURITY DEFINER functions can.
    if owner_writes then
        execute format('create policy owner_administers on %s to current_user using (true) with check (true)', target);
    else
        execute format('create policy owner_reads on %s for select to current_user using (true)', target);
    end if;
end $$;
comment on function enable_tenant_isolation(regclass, boolean) is
    'Closes a table to every tenant but the current one; the owner may read all rows, and with owner_writes also write them.';
