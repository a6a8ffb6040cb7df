-- The tools that a session called, and sessions by time.

alter table sessions add column tools jsonb not null default '{}';
create index sessions_by_time on sessions (tenant_id, started_at desc, id desc);

comment on column sessions.tools is 'How often the session called each of the butler''s tools, by name.';
