-- name: insert(tenant_id, butler, session_id, content, searchable, embedding, embedding_version_id, importance, ttl_days, metadata, actor, request_id, payload)^
-- Stores an episode with its event, pending consolidation.
with inserted as (
    insert into episodes (
        tenant_id, butler, session_id, content, search_vector, embedding, embedding_version_id, importance,
        expires_at, metadata
    )
    values (
        :tenant_id, :butler, :session_id, :content, to_tsvector('english', :searchable), :embedding,
        :embedding_version_id, :importance, now() + make_interval(days => :ttl_days), :metadata
    )
    returning id, expires_at
), event as (
    insert into memory_events (tenant_id, event_type, entity_type, entity_id, actor, request_id, payload)
    select :tenant_id, 'episode_created', 'episode', id, :actor, :request_id, :payload::jsonb from inserted
)
select id, expires_at from inserted;
