-- name: told_memories(tenant_id, episode_ids)
-- The memories that the sessions of these episodes were told, by episode.
select e.id as episode_id, array_agg(distinct l.memory_id) as memory_ids
  from episodes e
  join session_receipts r on r.tenant_id = :tenant_id and r.session_id = e.session_id
  join session_receipt_lines l on l.tenant_id = :tenant_id and l.receipt_id = r.id and l.outcome = 'told'
 where e.tenant_id = :tenant_id
   and e.id = any (:episode_ids)
 group by e.id;

-- name: near_memories(tenant_id, memory_type, ids, version, embedding, min_similarity)
-- Those of these memories that are near a vector, in any state, the nearest first.
select m.id, m.subject, m.predicate, m.content, near.similarity
  from memories m, lateral (select 1 - (m.embedding <=> :embedding) as similarity) near
 where m.tenant_id = :tenant_id
   and m.memory_type = :memory_type
   and m.id = any (:ids)
   and m.embedding_version_id = :version
   and near.similarity >= :min_similarity
 order by near.similarity desc, m.id;

-- name: near_facts(tenant_id, subject, scopes, version, embedding, min_similarity, max_compared, max_rows)
-- The live facts near a vector, among the newest about a subject.
select newest.id, newest.subject, newest.predicate, newest.content, near.similarity
  from (select id, subject, predicate, content, scope, embedding, embedding_version_id, created_at
          from facts
         where tenant_id = :tenant_id
           and subject = :subject
           and validity = 'active'
         order by created_at desc
         limit :max_compared) newest,
       lateral (select 1 - (newest.embedding <=> :embedding) as similarity) near
 where newest.scope = any (:scopes)
   and newest.embedding_version_id = :version
   and near.similarity >= :min_similarity
 order by near.similarity desc, newest.created_at desc, newest.id
 limit :max_rows;

-- name: frequent_predicates(tenant_id, scopes, max_compared, max_rows)
-- The predicates of the newest live facts in scope, the most frequent first.
select newest.predicate
  from (select predicate
          from facts
         where tenant_id = :tenant_id
           and scope = any (:scopes)
           and validity = 'active'
         order by created_at desc
         limit :max_compared) newest
 group by newest.predicate
 order by count(*) desc, newest.predicate
 limit :max_rows;
