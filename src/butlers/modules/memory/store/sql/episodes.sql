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
