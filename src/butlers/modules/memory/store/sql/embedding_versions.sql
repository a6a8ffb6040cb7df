-- name: know(tenant_id, id, model, version, dimensions)!
-- Makes an embedding version known to a tenant.
insert into embedding_versions (tenant_id, id, model, version, dimensions)
values (:tenant_id, :id, :model, :version, :dimensions)
on conflict do nothing;
