-- The newest live facts about a subject: a store compares a new fact with them.

create index facts_live_by_subject on facts (tenant_id, subject, created_at desc) where validity = 'active';
