-- name: insert(tenant_id, butler, session_id, content, searchable, embedding, embedding_version_id, importance, ttl_days, metadata)^
-- Stores an episode, pending consolidation.
insert into episodes (
    tenant_id, butler, session_id, content, search_vector, embedding, embedding_version_id, importance,
    expires_at, metadata
)
values (
    :tenant_id, :butler, :session_id, :content, to_tsvector('english', :searchable), :embedding,
    :embedding_version_id, :importance, now() + make_interval(days => :ttl_days), :metadata
)
returning id, expires_at;

-- name: recent(tenant_id, butler, max_rows, max_characters)
-- The latest live episodes of a butler, long contents cut.
select id, left(content, :max_characters) as content, created_at
  from episodes
 where tenant_id = :tenant_id
   and butler = :butler
   and (expires_at is null or expires_at > now())
 order by created_at desc, id
 limit :max_rows;
