"""How memories look on a terminal: as text, whatever they say."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from butlers.cli.output import spelled

_PARTS = ("similarity", "rank", "coverage", "rrf_score", "relevance", "importance", "recency")
_TWICE = {"type"}

View = Callable[[Any], RenderableType]


def show(answer: Any, view: View, *, as_json: bool, aside: bool = False) -> None:
    """What was answered: exactly, for programs; readable, for people. Aside is on stderr."""
    if as_json:
        typer.echo(json.dumps(answer), err=aside)
        return
    # A terminal that can't write a character gets its number instead.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    shown = view(answer)
    # Text alone is left to the terminal to wrap: it can be copied, or piped, as it is.
    alone = isinstance(shown, Text)
    Console(stderr=aside, markup=False, highlight=False, emoji=False).print(shown, soft_wrap=alone)


def visible(value: object) -> Text:
    """A value as text that can't do anything: what steers a terminal is spelled out."""
    if isinstance(value, float):
        return Text(f"{value:.3f}")
    if isinstance(value, Mapping):
        return Text("\n").join(Text(f"{name}: ") + visible(each) for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return Text(", ").join(visible(each) for each in value)
    text = "" if value is None else str(value)
    return Text(spelled(text))


def plain(text: str) -> Text:
    """A text as it stands."""
    return visible(text.rstrip("\n"))


def stored(kind: str) -> View:
    """What became of a memory that was to be stored."""

    def view(answer: Mapping[str, Any]) -> RenderableType:
        if answer.get("confirmed_existing"):
            return visible(f"This {kind} was known and is confirmed: {answer['id']}")
        instead = f", in place of {answer['superseded_id']}" if "superseded_id" in answer else ""
        until = f", until {answer['expires_at']}" if "expires_at" in answer else ""
        return visible(f"Stored the {kind} {answer['id']}{instead}{until}")

    return view


def found(memories: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Memories with their scores, the best first."""
    if not memories:
        return Text("Nothing was found.")
    table = _table("score", "memory")
    for memory in memories:
        table.add_row(visible(memory["score"]), _memory(memory))
    return table


def _memory(memory: Mapping[str, Any]) -> Text:
    about = [memory["memory_type"], memory.get("subject"), memory.get("predicate"), memory.get("maturity")]
    head = Text(" · ").join(visible(part) for part in about if part)
    confidence = {"confidence": memory["confidence"]} if "confidence" in memory else {}
    parts = confidence | {name: memory[name] for name in _PARTS if name in memory}
    told = Text(", ").join(Text(f"{name.removesuffix('_score')} ") + visible(part) for name, part in parts.items())
    head.stylize("bold")
    foot = Text(f"{memory['id']}\n") + told
    foot.stylize("dim")
    return Text("\n").join((head, visible(memory["content"]), foot))


def record(answer: Mapping[str, Any]) -> RenderableType:
    """Everything about one thing."""
    return _fields({name: value for name, value in answer.items() if name not in _TWICE})


def sections(answer: Mapping[str, Any]) -> RenderableType:
    """Counts, by what they count."""
    groups = {name: part for name, part in answer.items() if isinstance(part, Mapping)}
    panels = (Panel(_fields(part), title=name, title_align="left", expand=False) for name, part in groups.items())
    return Group(visible(f"scopes: {', '.join(answer['scopes'])}"), *panels)


def links(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The edges of a memory."""
    if not answer:
        return Text("It has no links.")
    table = _table("relation", "from and to")
    for link in answer:
        ends = "{source_type} {source_id}\n{target_type} {target_id}".format(**link)
        table.add_row(visible(link["relation"]), visible(ends))
    return table


def history(answer: Mapping[str, Any]) -> RenderableType:
    """What happened to a memory, and the facts before and after it."""
    happened = _table("when", "event")
    for event in answer["events"]:
        said = visible(f"{event['event_type']} by {event['actor']}\n") + visible(event["payload"])
        happened.add_row(_moment(event["occurred_at"]), said)
    parts: list[RenderableType] = [visible(f"{answer['memory_type']} {answer['id']}"), happened]
    for name in ("superseded", "superseded_by"):
        if answer[name]:
            parts += [Text(f"\n{name.replace('_', ' ')}:"), _chain(answer[name])]
    return Group(*parts)


def counted(answer: Mapping[str, Any]) -> RenderableType:
    """What an export or an import did, by kind."""
    columns = [name for name in ("exported", "imported", "skipped") if name in answer]
    table = Table(header_style="bold")
    table.add_column("kind")
    for column in columns:
        table.add_column(column, justify="right")
    for kind in answer[columns[0]]:
        table.add_row(visible(kind), *(visible(answer[column][kind]) for column in columns))
    pace = f"{answer['memories']} memories in {answer['seconds']:.1f} s, {answer['memories_per_second']:.1f}/s"
    return Group(visible(f"tenant {answer['tenant']}"), table, Text(pace))


def prompts(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What a model would be sent, group by group."""
    if not answer:
        return Text("Nothing waits to be consolidated.")
    parts = []
    for each in answer:
        told = "{tenant} · {butler}: {episodes} of {waiting} waiting episodes, {tokens} tokens\n".format(**each)
        head = visible(told)
        head.stylize("bold")
        parts.append(head + plain(each["prompt"]))
    return Text("\n\n").join(parts)


def consolidated(answer: Mapping[str, Any]) -> RenderableType:
    """What a run of consolidation did, and what was learned."""
    counted = {name: answer[name] for name in answer if name not in {"learned", "errors", "dry_run", "status"}}
    parts: list[RenderableType] = [_fields(counted)]
    if answer.get("learned"):
        table = _table("learned", "from")
        for each in answer["learned"]:
            about = [each["memory_type"], each.get("subject"), each.get("predicate")]
            head = Text(" · ").join(visible(part) for part in about if part)
            head.stylize("bold")
            said = Text("\n").join((head, visible(each["content"]), visible(each["id"])))
            table.add_row(said, visible("\n".join(each["evidence"])))
        parts.append(table)
    if answer.get("errors"):
        parts.append(visible("\n".join(["Not everything went well:", *answer["errors"]])))
    return Group(*parts)


def did(answer: Mapping[str, Any]) -> RenderableType:
    """What a job did, by its counts, and what it warns of."""
    counts = {name: value for name, value in answer.items() if name not in {"warnings", "dry_run"}}
    head = [Text("Nothing was changed; it would be:")] if answer.get("dry_run") else []
    return Group(*head, _fields(counts), *(visible(warning) for warning in answer.get("warnings", ())))


def retracted(answer: Mapping[str, Any]) -> RenderableType:
    """What came from a session or an episode, and what became of it."""
    if "restored" in answer:
        left = (
            f" Changed since then and left alone: {', '.join(answer['left_alone'])}." if answer["left_alone"] else ""
        )
        return visible(f"{answer['restored']} memories are back.{left}")
    if not answer["found"]:
        return Text("Nothing came from there.")
    table = _table("memory", "state")
    for each in answer["found"]:
        about = " · ".join(str(each[name]) for name in ("memory_type", "subject", "predicate") if each.get(name))
        also = f"\nalso said by {each['said_elsewhere']} other episodes" if "said_elsewhere" in each else ""
        table.add_row(visible(f"{about}\n{each['content']}\n{each['id']}"), visible(f"{each['state']}{also}"))
    if answer["dry_run"]:
        return Group(table, Text("Nothing was changed."))
    counts = ", ".join(f"{count} {kind}" for kind, count in answer["retracted"].items())
    back = (
        f" {len(answer['brought_back'])} facts that had been replaced hold again." if answer["brought_back"] else ""
    )
    told = f"Taken back: {counts}.{back} To undo it: --undo {answer['retraction_id']}"
    return Group(table, visible(told))


def erased(answer: Mapping[str, Any]) -> RenderableType:
    """What is gone for good, and what is left."""
    parts: list[RenderableType] = [Text("Erased:"), _fields(answer["erased"])]
    if "left" in answer:
        parts += [Text("Left of it:"), _fields(answer["left"])]
    if answer.get("still_said"):
        places = "\n".join("{kind} {id}".format(**each) for each in answer["still_said"])
        parts.append(visible(f"The same words still stand in:\n{places}"))
    elif "still_said" in answer:
        parts.append(Text("Its words stand nowhere else."))
    if not answer["vacuumed"]:
        parts.append(Text("The server keeps deleted rows until its next vacuum: only the owner can ask for one."))
    return Group(*parts)


def given_up(answer: Mapping[str, Any]) -> RenderableType:
    """Episodes that consolidation gave up, or how many of them wait again."""
    if "requeued" in answer:
        return visible(f"{answer['requeued']} episodes wait to be consolidated again.")
    if not answer["dead_letters"]:
        return Text("No episode was given up.")
    table = _table("when", "episode", "why")
    for each in answer["dead_letters"]:
        said = visible(f"{each['content']}\n{each['id']}")
        table.add_row(_moment(each["created_at"]), said, visible(each["last_consolidation_error"]))
    return table


def _chain(facts: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("when", "fact")
    for fact in facts:
        table.add_row(_moment(fact["created_at"]), visible(f"{fact['content']}\n{fact['id']}"))
    return table


def _moment(iso: str) -> Text:
    return visible(iso[:19].replace("T", " "))


def _fields(values: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(Text(name.replace("_", " ")), visible(value))
    return table


def _table(*columns: str) -> Table:
    table = Table(header_style="bold", show_lines=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


VIEWS: Mapping[str, View] = {
    "memory_store_episode": stored("episode"),
    "memory_store_fact": stored("fact"),
    "memory_store_rule": stored("rule"),
    "memory_search": found,
    "memory_recall": found,
    "memory_get": record,
    "memory_confirm": record,
    "memory_mark_helpful": record,
    "memory_mark_harmful": record,
    "memory_forget": record,
    "memory_restore": record,
    "memory_stats": sections,
    "memory_links": links,
    "memory_history": history,
    "memory_context": plain,
    "memory_run_consolidation": consolidated,
    "memory_run_episode_cleanup": did,
    "memory_dead_letters": given_up,
    "memory_retract_from": retracted,
}
