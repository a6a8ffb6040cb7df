-- name: live(tenant_id, id)^
-- An entity that facts may be tied to, kept from being merged away until the transaction ends.
select id, metadata ->> 'merged_into' as merged_into
  from entities
 where tenant_id = :tenant_id
   and id = :id
   for key share;
