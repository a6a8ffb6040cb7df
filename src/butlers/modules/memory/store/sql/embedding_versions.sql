-- name: register_version(tenant_id, id, model, version, dimensions)!
-- Registers an embedding version with a tenant.
insert into embedding_versions (tenant_id, id, model, version, dimensions)
values (:tenant_id, :id, :model, :version, :dimensions)
on conflict do nothing;
