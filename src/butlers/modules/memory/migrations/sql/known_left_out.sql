alter table consolidation_runs add column known_left_out integer not null default 0;
comment on column consolidation_runs.known_left_out is
    'Facts and rules among the nearest that had no room in the prompt.';
