"""Entities in export files: all are exported and imported, and no live fact is imported for a merged one."""

import asyncio
import io
import uuid

import pytest

from butlers.errors import Conflict
from butlers.modules.memory.operations import entities, export_import
from butlers.modules.memory.store.export_import import RecordKind
from memory.memory_fixtures import REQUEST


async def export_lines(memory, caller) -> bytes:
    out = io.StringIO()
    await export_import.export_tenant(memory, caller, out.write)
    return out.getvalue().encode()


async def test_entities_merged_or_not_come_back_as_they_were_and_are_found(memory, caller, tools, stranger, archive):
    gone, kept = await tools.entity("Chloé", aliases=["Coco"]), await tools.entity("Chloe Martin")
    await tools.fact("tea", entity_id=gone)
    await tools("entity_merge", source_entity_id=gone, target_entity_id=kept)
    file = await export_lines(memory, caller)
    other = type(caller)(tenant=stranger.tenant, butler=memory.butler)
    await export_import.import_file(memory, other, io.BytesIO(file))
    columns = "id, canonical_name, entity_type, aliases, metadata, names, created_at, updated_at"
    rows = [
        await archive.rows(f"select {columns} from entities where tenant_id = $1 order by id", each)  # noqa: S608
        for each in (tools.tenant, stranger.tenant)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2
    for name in ("chloe", "COCO", "chloe martin"):
        assert [each["entity_id"] for each in await stranger("entity_resolve", name=name)] == [kept]


async def test_a_file_from_before_a_merge_brings_no_live_fact_to_the_tombstone(memory, caller, tools, archive):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    fact = await tools.fact("tea", subject="Chloe", predicate="drink", entity_id=source)
    file = await export_lines(memory, caller)
    await tools("entity_merge", source_entity_id=source, target_entity_id=target)
    again = await export_import.import_file(memory, caller, io.BytesIO(file), merge=True)
    assert again.skipped[RecordKind.FACT] == 1, "what is there already is left where it is now"
    other = str(uuid.uuid4())
    edited = file.replace(fact.encode(), other.encode()).replace(b'"drink"', b'"meal"')
    before = await archive.everything(tools.tenant)
    with pytest.raises(Conflict, match=f"its entity {source} was merged away") as refused:
        await export_import.import_file(memory, caller, io.BytesIO(edited), merge=True)
    assert "Nothing was imported." in str(refused.value)
    assert await archive.everything(tools.tenant) == before


async def test_a_merge_and_an_import_at_once_leave_no_live_fact_on_a_tombstone(memory, caller, tools, archive):
    source, target = await tools.entity("Chloe"), await tools.entity("Chloe Martin")
    await tools.fact("tea", subject="Chloe", predicate="drink", entity_id=source)
    file = await export_lines(memory, caller)
    for number in range(6):
        extra = file.replace(b'"drink"', f'"drink {number}"'.encode())
        for fact in await archive.rows("select id::text from facts where tenant_id = $1", tools.tenant):
            extra = extra.replace(fact["id"].encode(), str(uuid.uuid4()).encode())
        new = await tools.entity(f"Chloe {number}")
        extra = extra.replace(source.encode(), new.encode())
        extra = extra.replace(b'"Chloe"', f'"Chloe {number}"'.encode())
        results = await asyncio.gather(
            export_import.import_file(memory, caller, io.BytesIO(extra), merge=True),
            entities.merge(memory, caller, uuid.UUID(new), uuid.UUID(target), REQUEST),
            return_exceptions=True,
        )
        assert isinstance(results[1], dict), results
        assert isinstance(results[0], (export_import.ImportReport, Conflict)), results
    live = await archive.rows(
        "select f.id from facts f join entities e on e.tenant_id = f.tenant_id and e.id = f.entity_id"
        " where f.tenant_id = $1 and e.metadata ? 'merged_into'",
        tools.tenant,
    )
    assert live == []
