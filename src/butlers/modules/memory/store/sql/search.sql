-- name: prepare(tenant_id, language, question, loads_statistics, scopes, butlers, max_counted, max_sampled, max_terms)^
-- The lexemes of a question in their order, the estimated rows of the tables with and without an HNSW index, and on
-- request the statistics of each type: memories in scope, counted up to a limit, and for a sample of the tenant's the
-- number that have each of its common terms.
select array(
           select lexeme from unnest(to_tsvector(:language::text::regconfig, :question)) order by positions[1], lexeme
       ) as terms,
       (
           select jsonb_object_agg(left(t.relname, -1), jsonb_build_object(
                      'rows', greatest(t.reltuples, 0)::bigint,
                      'has_graph', exists (
                          select
                            from pg_index x
                            join pg_class i on i.oid = x.indexrelid
                            join pg_am am on am.oid = i.relam
                           where x.indrelid = t.oid
                             and x.indisvalid
                             and i.relname = t.relname || '_embedding'
                             and am.amname = 'hnsw'
                             and x.indexprs is not null
                      )
                  ))
             from pg_class t
            where t.relnamespace = 'public'::regnamespace
              and t.relname in ('facts', 'rules', 'episodes')
       ) as tables,
       case when :loads_statistics then (
           with sizes as (
               select type.name, counted.size
                 from unnest(array['fact', 'rule', 'episode']) as type (name),
                      lateral (
                          select count(*) as size
                            from (
                                select
                                  from memories
                                 where tenant_id = :tenant_id
                                   and memory_type = type.name
                                   and is_live
                                   and (
                                       :scopes::text[] is null
                                       or scope = any (case when type.name = 'episode' then :butlers::text[] else :scopes end)
                                   )
                                 limit :max_counted
                            ) counted
                      ) counted
           ), samples as (
               select 'fact' as name, count(*) as size
                 from (select from facts where tenant_id = :tenant_id and validity = 'active' limit :max_sampled) f
               union all
               select 'rule', count(*) from (select from rules where tenant_id = :tenant_id limit :max_sampled) r
               union all
               select 'episode', count(*) from (select from episodes where tenant_id = :tenant_id limit :max_sampled) e
           ), counts as (
               (
                   select 'fact' as name, word, ndoc
                     from ts_stat($q$
                              select search_vector from facts
                               where tenant_id = current_tenant() and validity = 'active' order by id limit
                          $q$ || :max_sampled::integer)
                    order by ndoc desc, word
                    limit :max_terms
               )
               union all
               (
                   select 'rule', word, ndoc
                     from ts_stat($q$
                              select search_vector from rules where tenant_id = current_tenant() order by id limit
                          $q$ || :max_sampled::integer)
                    order by ndoc desc, word
                    limit :max_terms
               )
               union all
               (
                   select 'episode', word, ndoc
                     from ts_stat($q$
                              select search_vector from episodes
                               where tenant_id = current_tenant() order by id limit
                          $q$ || :max_sampled::integer)
                    order by ndoc desc, word
                    limit :max_terms
               )
           )
           select jsonb_object_agg(sizes.name, jsonb_build_object(
                      'size', sizes.size,
                      'sampled', samples.size,
                      'counts', coalesce(
                          (select jsonb_object_agg(word, ndoc) from counts where counts.name = sizes.name), '{}'
                      )
                  ))
             from sizes
             join samples on samples.name = sizes.name
       ) end as statistics;

-- name: candidates(plans, advice_only, with_neighbours, min_confidence, depth, embedding, version, language, question, max_ranked, weighted_terms, term_weights)
-- The live memories that either arm finds, of each type with a plan.
select plan.memory_type, c.id, c.created_at, c.importance, c.maturity,
       extract(epoch from now() - c.last_referenced_at)::double precision / 86400 as idle_days,
       c.confidence, c.similarity, c.semantic_rank, c.rank, c.has_all_terms as has_all, c.keyword_rank, c.coverage,
       c.previous_similarity, c.previous_coverage, c.next_similarity, c.next_coverage
  from jsonb_to_recordset(:plans::jsonb) as plan (
           memory_type text, scopes text[], uses_graph boolean, single text[], first text[], second text[],
           fallback text[]
       )
 cross join lateral search_candidates(
           plan.memory_type, plan.scopes, plan.uses_graph, :advice_only, :with_neighbours, :min_confidence, :depth,
           :embedding, :version, :language::text::regconfig, :question, plan.single, plan.first, plan.second,
           plan.fallback, :max_ranked, :weighted_terms, :term_weights
       ) c;
