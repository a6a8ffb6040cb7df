-- Indexes of what fades next: of each permanence, the memories that were confirmed longest ago. A recall changes none
-- of these columns, so it stays a heap-only update; a confirmation writes them anew.

create index facts_by_confirmation on facts (tenant_id, permanence, last_confirmed_at nulls first, id)
    where validity = 'active';
create index facts_vital_by_confirmation on facts (tenant_id, permanence, last_confirmed_at nulls first, id)
    where validity = 'active' and importance >= 8;
create index rules_by_confirmation on rules (tenant_id, permanence, last_confirmed_at nulls first, id);
