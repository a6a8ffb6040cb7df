"""How entities look on a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from butlers.cli.memory_views import View, record, visible

_COMPARED = ("canonical_name", "entity_type", "aliases", "metadata", "live_facts", "created_at", "id")


def created(answer: Mapping[str, Any]) -> RenderableType:
    """Who is known now."""
    return visible(f"Created the entity {answer['id']}")


def resolved(candidates: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Whom a name may mean, the likeliest first."""
    if not candidates:
        return Text("Nobody has that name.")
    table = _table("score", "match", "entity")
    for each in candidates:
        table.add_row(visible(each["score"]), visible(each["name_match"]), _entity(each, each["entity_id"]))
    return table


def listed(entities: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Entities with the number of their facts; a merged one with what it was called and who stands for it."""
    if not entities:
        return Text("There are no entities.")
    table = _table("facts", "entity")
    for each in entities:
        shown = _entity({**each, "canonical_name": each["former_name"] or each["canonical_name"]}, each["id"])
        if each["merged_into"]:
            shown.append_text(Text("\nmerged into ") + visible(each["merged_into"]))
        table.add_row(visible(each["live_facts"]), shown)
    return table


def merged(answer: Mapping[str, Any]) -> RenderableType:
    """What a merge did."""
    return visible(
        "Merged {source_entity_id} into {target_entity_id}: {facts_repointed} facts moved, "
        "{facts_superseded} superseded, {aliases_added} aliases added".format(**answer)
    )


def side_by_side(would: Mapping[str, Any]) -> RenderableType:
    """The two entities of a merge, and which fact would stay where both have one."""
    table = _table("", "goes", "stays")
    for name in _COMPARED:
        table.add_row(Text(name.replace("_", " ")), visible(would["source"][name]), visible(would["target"][name]))
    if not would["conflicts"]:
        return Group(table, Text("No facts are in conflict."))
    return Group(table, Text("\nIn conflict:"), _conflicts(would["conflicts"]))


def _conflicts(conflicts: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("fact", "would stay", "would be superseded")
    for each in conflicts:
        kept, gone = each["kept"], each["superseded"]
        table.add_row(visible(f"{kept['scope']} · {kept['predicate']}"), _belief(kept), _belief(gone))
    return table


def _belief(fact: Mapping[str, Any]) -> Text:
    return visible(fact["content"]) + Text("\nconfidence ") + visible(float(fact["confidence"]))


def _entity(entity: Mapping[str, Any], entity_id: str) -> Text:
    head = visible(entity["canonical_name"])
    head.stylize("bold")
    kind = Text(" · ") + visible(entity["entity_type"])
    also = Text("\nalso ") + visible(entity["aliases"]) if entity["aliases"] else Text()
    foot = visible(entity_id)
    foot.stylize("dim")
    return Text.assemble(head, kind, also, Text("\n"), foot)


def _table(*columns: str) -> Table:
    table = Table(header_style="bold", show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


VIEWS: Mapping[str, View] = {
    "entity_create": created,
    "entity_get": record,
    "entity_update": record,
    "entity_resolve": resolved,
    "entity_merge": merged,
}
