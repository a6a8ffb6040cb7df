"""Text views of the answers of entity tools and operations."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from butlers.cli.memory_views import View, record
from butlers.cli.tables import TextTable, styled, visible

_COMPARED = ("canonical_name", "entity_type", "aliases", "metadata", "live_facts", "created_at")
_ENTITY = "entity / also: / id"


def created(answer: Mapping[str, Any]) -> RenderableType:
    """Render the id of a new entity."""
    return visible(f"Created the entity {answer['id']}")


def candidates(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render the entities that a name may mean, the most likely first."""
    if not answer:
        return Text("No entity has that name.")
    rows = [{**each, "match": each["name_match"], **_entity(each, each["entity_id"])} for each in answer]
    return TextTable(f"score | match | {_ENTITY}", rows)


def entity_list(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render entities with the number of their facts; a merged one with its former name."""
    if not answer:
        return Text("There are no entities.")
    rows = [{**each, "facts": each["live_facts"], **_entity(each, each["id"])} for each in answer]
    return TextTable(f"facts | {_ENTITY} / merged_into:", rows)


def merged(answer: Mapping[str, Any]) -> RenderableType:
    """Render the counts of a merge."""
    return visible(
        "Merged {source_entity_id} into {target_entity_id}: {facts_repointed} facts moved, "
        "{facts_superseded} superseded, {aliases_added} aliases added".format(**answer)
    )


def merge_preview(preview: Mapping[str, Any]) -> RenderableType:
    """Render both entities of a merge, and which fact stays where both have one."""
    source, target = (
        {**preview[side], "created_at": datetime.fromisoformat(preview[side]["created_at"])}
        for side in ("source", "target")
    )
    rows = [{"field": name.replace("_", " "), "removed": source[name], "kept": target[name]} for name in _COMPARED]
    parts: list[RenderableType] = [
        visible(f"removed: {source['id']}\nkept:    {target['id']}"),
        TextTable("field | removed | kept", rows, 2),
    ]
    if not preview["conflicts"]:
        return Group(*parts, Text("No facts conflict."))
    conflicts = [
        {
            "fact": f"{each['kept']['scope']} · {each['kept']['predicate']}",
            "stays": _belief(each["kept"]),
            "is superseded": _belief(each["superseded"]),
        }
        for each in preview["conflicts"]
    ]
    return Group(*parts, Text("\nConflicting facts:"), TextTable("fact | stays | is superseded", conflicts, 3))


def _belief(fact: Mapping[str, Any]) -> Text:
    return visible(fact["content"]) + Text("\nconfidence ") + visible(float(fact["confidence"]))


def _entity(entity: Mapping[str, Any], entity_id: str) -> dict[str, object]:
    name = styled(entity.get("former_name") or entity["canonical_name"], "bold")
    return {
        "entity": name + Text(" · ") + visible(entity["entity_type"]),
        "also": entity["aliases"],
        "id": styled(entity_id, "dim"),
    }


VIEWS: Mapping[str, View] = {
    **dict.fromkeys(("entity_get", "entity_update"), record),
    "entity_create": created,
    "entity_resolve": candidates,
    "entity_merge": merged,
}
