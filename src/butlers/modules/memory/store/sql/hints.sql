-- name: similar_facts(tenant_id, id, subject, entity_id, scopes, version, embedding, min_similarity, max_compared, max_characters, max_rows)
-- The live facts most similar to a new one, among the newest about its subject or entity. A fact about another entity
-- is about something else, whatever its subject.
with topic as (
    select *
      from (select id, subject, predicate, content, scope, entity_id, embedding, embedding_version_id, created_at
              from facts
             where tenant_id = :tenant_id
               and subject = :subject
               and validity = 'active'
             order by created_at desc
             limit :max_compared) of_subject
     where entity_id is null or :entity_id::uuid is null or entity_id = :entity_id
    union all
    select *
      from (select id, subject, predicate, content, scope, entity_id, embedding, embedding_version_id, created_at
              from facts
             where tenant_id = :tenant_id
               and entity_id = :entity_id
               and subject <> :subject
               and validity = 'active'
             limit :max_compared) of_entity
)
select id, subject, predicate, left(content, :max_characters) as content, near.similarity
  from topic, lateral (select 1 - (embedding <=> :embedding) as similarity) near
 where id <> :id
   and scope = any (:scopes)
   and embedding_version_id = :version
   and near.similarity >= :min_similarity
 order by near.similarity desc, created_at desc, id
 limit :max_rows;

-- name: similar_rules(tenant_id, id, scopes, version, embedding, min_similarity, max_compared, max_characters, max_rows)
-- The live rules most similar to a new one, among the newest in scope.
select id, left(content, :max_characters) as content, near.similarity
  from (select id, content, embedding, created_at
          from rules
         where tenant_id = :tenant_id
           and scope = any (:scopes)
           and embedding_version_id = :version
           and not coalesce((metadata -> 'forgotten')::boolean, false)
         order by created_at desc
         limit :max_compared) newest,
       lateral (select 1 - (embedding <=> :embedding) as similarity) near
 where id <> :id
   and near.similarity >= :min_similarity
 order by near.similarity desc, created_at desc, id
 limit :max_rows;
