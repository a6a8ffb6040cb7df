-- name: insert(tenant_id, butler, session_id, content, searchable, embedding, embedding_version_id, importance, ttl_days, metadata)^
-- A new episode, to be consolidated before it expires.
insert into episodes (
    tenant_id, butler, session_id, content, search_vector, embedding, embedding_version_id, importance,
    expires_at, metadata
)
values (
    :tenant_id, :butler, :session_id, :content, to_tsvector('english', :searchable), :embedding,
    :embedding_version_id, :importance, now() + make_interval(days => :ttl_days), :metadata
)
returning id, expires_at;

-- name: forget(tenant_id, id)$
-- Ends an episode now; the time it had left stays with it.
update episodes
   set metadata = metadata || jsonb_build_object('forgotten_until', expires_at),
       expires_at = now()
 where tenant_id = :tenant_id
   and id = :id
   and (expires_at is null or expires_at > now())
   and not metadata ? 'forgotten_until'
returning id;

-- name: restore(tenant_id, id)$
-- Gives a forgotten episode the time back that it had left.
update episodes
   set expires_at = greatest((metadata ->> 'forgotten_until')::timestamptz, now() + interval '1 day'),
       metadata = metadata - 'forgotten_until'
 where tenant_id = :tenant_id
   and id = :id
   and metadata ? 'forgotten_until'
returning id;

-- name: recent(tenant_id, butler, most)
-- The latest live episodes of a butler.
select id, content, created_at
  from episodes
 where tenant_id = :tenant_id
   and butler = :butler
   and (expires_at is null or expires_at > now())
 order by created_at desc, id
 limit :most;

-- name: candidates_exact(tenant_id, version, embedding, scopes, least_confidence, depth, reach, question, alone, firsts, seconds, reserve, most)
-- The nearest live episodes, by comparing all of them, and the ones with the right words.
with compared as materialized (
    select id, created_at, (embedding <=> :embedding) + 0 as distance
      from episodes
     where tenant_id = :tenant_id
       and embedding_version_id = :version
       and (expires_at is null or expires_at > now())
       and (:scopes::text[] is null or butler = any (:scopes))
       and :embedding::vector is not null
     order by distance, created_at desc, id
     limit :reach
), near as (
    select c.id, c.created_at, c.distance, b.importance,
           row_number() over (order by c.distance, c.created_at desc, c.id) as place
      from compared c
     cross join lateral (
         select f.importance
           from episodes f
          where f.tenant_id = :tenant_id
            and f.id = c.id
         offset 0
     ) b
     order by c.distance, c.created_at desc, c.id
     limit :depth
), words as (
    select w.*
      from episode_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, importance, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.importance, words.importance) as importance,
       reached.compared
  from (select count(*) as compared from compared) reached
  left join (near full join words on words.id = near.id) on true;

-- name: candidates_indexed(tenant_id, version, embedding, scopes, least_confidence, depth, question, alone, firsts, seconds, reserve, most)
-- The nearest live episodes, by the vector index, and the ones with the right words.
with near as (
    select n.*, row_number() over (order by n.distance, n.created_at desc, n.id) as place
      from (
          select f.id, f.created_at, f.embedding <=> :embedding as distance,
                 f.importance
            from episodes f
           where f.tenant_id = :tenant_id
             and f.embedding_version_id = :version
             and (f.expires_at is null or f.expires_at > now())
             and (:scopes::text[] is null or f.butler = any (:scopes))
             and :embedding::vector is not null
           order by f.embedding <=> :embedding
           limit :depth
      ) n
), words as (
    select w.*
      from episode_words(:question, :alone, :scopes, :least_confidence, :depth, :most, :firsts, :seconds, :reserve)
           with ordinality as w (id, created_at, rank, has_all, importance, place)
     where :question::text is not null
)
select coalesce(near.id, words.id) as id, coalesce(near.created_at, words.created_at) as created_at,
       1 - near.distance as similarity, near.place as semantic_rank,
       words.rank, words.has_all, words.place as keyword_rank,
       coalesce(near.importance, words.importance) as importance
  from near
  full join words on words.id = near.id;

-- name: size(tenant_id, scopes, most)$
-- How many live episodes are in scope, counted no further than `most`.
select count(*)
  from (
      select
        from episodes
       where tenant_id = :tenant_id
         and (expires_at is null or expires_at > now())
         and (:scopes::text[] is null or butler = any (:scopes))
       limit :most
  ) counted;
