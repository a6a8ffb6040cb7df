-- Rate budgets: the calls that a tenant may still make, shared by all processes of a butler.

create table rate_budgets (
    tenant_id text not null,
    butler text not null,
    calls double precision not null,
    updated_at timestamptz not null,
    constraint rate_budgets_pkey primary key (tenant_id, butler),
    constraint rate_budgets_tenant_named check (tenant_id <> ''),
    constraint rate_budgets_butler_not_blank check (butler ~ '\S')
) with (fillfactor = 50);
select enable_tenant_isolation('rate_budgets');

comment on table rate_budgets is 'The token bucket of each tenant: its processes lease calls from it in blocks.';
comment on column rate_budgets.calls is 'The calls that were left at updated_at; they grow by the rate until the burst.';

create function lease_calls(of_butler text, wanted double precision, rate double precision, burst double precision)
returns double precision
language plpgsql set search_path = '' as $$
declare
    tenant text := public.current_tenant();
    available double precision;
    granted double precision;
begin
    insert into public.rate_budgets (tenant_id, butler, calls, updated_at)
    values (tenant, of_butler, burst, clock_timestamp())
        on conflict do nothing;
    select least(burst, b.calls + rate * extract(epoch from clock_timestamp() - b.updated_at)) into available
      from public.rate_budgets b
     where b.tenant_id = tenant and b.butler = of_butler
       for update;
    granted := case when available >= 1 then least(wanted, available) else 0 end;
    update public.rate_budgets b
       set calls = available - granted, updated_at = clock_timestamp()
     where b.tenant_id = tenant and b.butler = of_butler;
    return granted;
end $$;
comment on function lease_calls(text, double precision, double precision, double precision) is
    'Takes up to the wanted number of calls from the budget of the current tenant; returns how many.';
