"""Text views of the answers of memory tools and operations."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from butlers.cli.tables import TextTable, fields, styled, visible

_SIGNALS = ("confidence", "similarity", "rank", "coverage", "rrf_score", "relevance", "importance", "recency")

View = Callable[[Any], RenderableType]


def plain(text: str) -> Text:
    """Render a text without a frame."""
    return visible(text.rstrip("\n"))


def stored(kind: str) -> View:
    """Return a view of a stored or confirmed memory of this kind."""

    def view(answer: Mapping[str, Any]) -> RenderableType:
        act = "Confirmed the existing" if answer.get("confirmed_existing") else "Stored the"
        replaced = [answer[name] for name in ("superseded_id", "also_superseded_id") if name in answer]
        superseded = f", which supersedes {' and '.join(replaced)}" if replaced else ""
        expiry = f", which expires at {answer['expires_at']}" if "expires_at" in answer else ""
        kinds = ", ".join(f"{number} {name}" for name, number in answer.get("redacted", {}).items())
        redacted = f". Secrets were redacted: {kinds}" if kinds else ""
        sentence = visible(f"{act} {kind} {answer['id']}{superseded}{expiry}{redacted}")
        return Group(sentence, *_similar(kind, answer)) if "similar" in answer else sentence

    return view


def _similar(kind: str, answer: Mapping[str, Any]) -> list[RenderableType]:
    """Render the memories that are similar to a stored one, and what to do with them."""
    rows = [
        {**each, "memory": heading({"memory_type": kind, **each}), "id": styled(each["id"], "dim")}
        for each in answer["similar"]
    ]
    return [Text("Similar ones:"), TextTable("similarity | memory / content / id", rows), visible(answer["hint"])]


def stored_batch(answer: Mapping[str, Any]) -> RenderableType:
    """Render the number of stored memories by type, and of those they confirmed, superseded and resemble."""
    results = answer["results"]
    types = Counter(each["memory_type"] for each in results)
    notes = {
        "confirmed": sum(bool(each.get("confirmed_existing")) for each in results),
        "superseded": sum(name in each for each in results for name in ("superseded_id", "also_superseded_id")),
        "with similar ones": sum("similar" in each for each in results),
    }
    counts = {f"{name}s": count for name, count in sorted(types.items())} | notes
    shown = {name: count for name, count in counts.items() if count}
    return Group(fields({"tenant": answer["tenant"], **shown}), _speed(answer))


def search_results(memories: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render memories with their scores, the best first."""
    if not memories:
        return Text("Nothing was found.")
    rows = [
        {
            **memory,
            "memory": heading(memory, "maturity"),
            "id": styled(memory["id"], "dim"),
            "signals": _signals(memory),
        }
        for memory in memories
    ]
    return TextTable("score / match | memory / content / id / signals", rows)


def record(answer: Mapping[str, Any]) -> RenderableType:
    """Render the fields of one memory or entity that have a value."""
    # memory_get repeats the memory type as `type`.
    return fields({name: value for name, value in answer.items() if name != "type" and value is not None})


def statistics(answer: Mapping[str, Any]) -> RenderableType:
    """Render counts in sections."""
    parts: list[RenderableType] = [visible(f"scopes: {', '.join(answer['scopes'])}")]
    for name, section in answer.items():
        if isinstance(section, Mapping):
            parts += [styled(f"\n{name}", "bold underline"), fields(section)]
    return Group(*parts)


def links(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render the links of a memory."""
    if not answer:
        return Text("The memory has no links.")
    rows = [
        {**link, "from": "{source_type} {source_id}".format(**link), "to": "{target_type} {target_id}".format(**link)}
        for link in answer
    ]
    return TextTable("relation | from: / to:", rows)


def history(answer: Mapping[str, Any]) -> RenderableType:
    """Render the events of a memory, and the facts before and after it."""
    events = [
        {**event, "when": parse_time(event["occurred_at"]), "event": "{event_type} by {actor}".format(**event)}
        for event in answer["events"]
    ]
    parts: list[RenderableType] = [
        visible(f"{answer['memory_type']} {answer['id']}"),
        TextTable("when | event / payload", events),
    ]
    if answer["truncated"]:
        shown = f"{len(events)} of {answer['total']} events"
        parts.append(visible(f"{shown}; the next ones: --cursor {answer['next_cursor']}"))
    for name in ("superseded", "superseded_by"):
        if answer[name]:
            rows = [
                {"when": parse_time(fact["created_at"]), "fact": fact["content"], **fact} for fact in answer[name]
            ]
            parts += [Text(f"\n{name.replace('_', ' ')}:"), TextTable("when | fact / id", rows)]
    if answer["chain_truncated"]:
        parts.append(Text("The chain is longer; the history of its last fact has the rest."))
    return Group(*parts)


def transfer(answer: Mapping[str, Any]) -> RenderableType:
    """Render the counts and the speed of an export or an import."""
    columns = [name for name in ("exported", "imported", "skipped") if name in answer]
    rows = [{"kind": kind, **{name: answer[name][kind] for name in columns}} for kind in answer[columns[0]]]
    table = TextTable(" | ".join(("kind", *columns)), rows)
    return Group(visible(f"tenant {answer['tenant']}"), table, _speed(answer))


def _speed(answer: Mapping[str, Any]) -> Text:
    return Text(f"{answer['memories']} memories in {answer['seconds']:.1f} s, {answer['memories_per_second']:.1f}/s")


def prompts(answer: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Render the prompts that consolidation would send."""
    if not answer:
        return Text("No episodes are pending.")
    heading = "{tenant} · {butler}: {episodes} of {waiting} pending episodes, {tokens} tokens\n"
    return Text("\n\n").join(styled(heading.format(**each), "bold") + plain(each["prompt"]) for each in answer)


def consolidation(answer: Mapping[str, Any]) -> RenderableType:
    """Render the counts of a consolidation, the new memories and the errors."""
    counts = {name: answer[name] for name in answer if name not in {"learned", "errors", "dry_run", "status"}}
    parts: list[RenderableType] = [fields(counts)]
    if answer.get("learned"):
        rows = [
            {**memory, "learned": heading(memory), "from": "\n".join(memory["evidence"])}
            for memory in answer["learned"]
        ]
        parts.append(TextTable("from | learned / content / id", rows))
    if answer.get("errors"):
        parts.append(visible("\n".join(["Errors:", *answer["errors"]])))
    return Group(*parts)


def job_result(answer: Mapping[str, Any]) -> RenderableType:
    """Render the counts and the warnings of a job."""
    counts = {name: value for name, value in answer.items() if name not in {"warnings", "dry_run"}}
    heading = [Text("Nothing was changed. A run would give:")] if answer.get("dry_run") else []
    return Group(*heading, fields(counts), *(visible(warning) for warning in answer.get("warnings", ())))


def retraction(answer: Mapping[str, Any]) -> RenderableType:
    """Render the memories from a session or an episode, and the result of their retraction."""
    if "restored" in answer:
        left = answer["left_alone"]
        skipped = f" Not restored, because they changed since then: {', '.join(left)}." if left else ""
        return visible(f"Restored {answer['restored']} memories.{skipped}")
    if not answer["found"]:
        return Text("Nothing came from there.")
    rows = [
        {
            **memory,
            "memory": heading(memory),
            "corroborated_by": f"{memory['corroborated_by']} other episodes" if "corroborated_by" in memory else "",
        }
        for memory in answer["found"]
    ]
    table: RenderableType = TextTable("state | memory / content / id / corroborated_by:", rows)
    if answer.get("total", 0) > len(rows):
        table = Group(table, Text(f"{len(rows)} of {answer['total']:,} memories"))
    if answer["dry_run"]:
        return Group(table, Text("Nothing was changed."))
    counts = ", ".join(f"{count} {kind}" for kind, count in answer["retracted"].items())
    active = len(answer["brought_back"])
    restored = f" {active} facts that they had superseded are active again." if active else ""
    return Group(table, visible(f"Retracted: {counts}.{restored} To undo it: --undo {answer['retraction_id']}"))


def undo(answer: Mapping[str, Any]) -> RenderableType:
    """Render the records that an undo gives their state before, or why it is refused."""
    if answer.get("already"):
        return visible(f"The call {answer['request_id']} is undone already.")
    if "reason" in answer:
        return visible(f"It can't be undone: {answer['reason']}.")
    rows = [
        {**record, "record": heading(record), "change": _changes(record), "event": ", ".join(record["events"])}
        for record in answer["undone"]
    ]
    number = answer["number"]
    more = [visible(f"… and {number - len(rows)} more")] if number > len(rows) else []
    end = "Nothing was changed." if answer.get("dry_run") else f"Undone: {number} of the call {answer['request_id']}."
    return Group(TextTable("event | record / id / change", rows), *more, visible(end))


def _changes(record: Mapping[str, Any]) -> str:
    changes = ["{field}: {from} → {to}".format(**change) for change in record["changes"]]
    return "; ".join(changes) or "no value changes"


def erasure(answer: Mapping[str, Any]) -> RenderableType:
    """Render the counts of deleted rows, and where the same text is still stored."""
    parts: list[RenderableType] = [Text("Erased:"), fields(answer["erased"])]
    if "left" in answer:
        parts += [Text("Remaining:"), fields(answer["left"])]
    if answer.get("mentions"):
        mentions = "\n".join("{kind} {id}".format(**each) for each in answer["mentions"])
        more = "\n… and elsewhere" if answer["mentions_truncated"] else ""
        parts.append(visible(f"The same text is still stored in:\n{mentions}{more}"))
    elif "mentions" in answer:
        parts.append(Text("The text is stored nowhere else."))
    if not answer["vacuumed"]:
        parts.append(Text("Deleted rows stay on disk until the next vacuum, which only the database owner can run."))
    return Group(*parts)


def dead_letters(answer: Mapping[str, Any]) -> RenderableType:
    """Render the dead-lettered episodes, or the number of retried ones."""
    if "requeued" in answer:
        return visible(f"{answer['requeued']} episodes are pending again.")
    if not answer["dead_letters"]:
        return Text("There are no dead letters.")
    rows = [
        {
            **episode,
            "when": parse_time(episode["created_at"]),
            "episode": episode["content"],
            "error": episode["last_consolidation_error"],
        }
        for episode in answer["dead_letters"]
    ]
    table = TextTable("when | episode / id / error:", rows)
    total = answer["total"]
    return Group(table, visible(f"{len(rows)} of {total} dead letters")) if total > len(rows) else table


def heading(memory: Mapping[str, Any], *names: str) -> Text:
    """Return the memory's type and key, and its values of these names, in bold."""
    names = ("memory_type", "subject", "predicate", *names)
    return styled(Text(" · ").join(visible(memory[name]) for name in names if memory.get(name)), "bold")


def _signals(memory: Mapping[str, Any]) -> Text:
    signals = {name.removesuffix("_score"): memory[name] for name in _SIGNALS if name in memory}
    return styled(Text(", ").join(Text(f"{name} ") + visible(value) for name, value in signals.items()), "dim")


def parse_time(iso: str) -> datetime:
    """Return the time of an answer."""
    return datetime.fromisoformat(iso)


_CHANGES = ("confirm", "mark_helpful", "mark_harmful", "forget", "restore")
VIEWS: Mapping[str, View] = {
    **{f"memory_store_{kind}": stored(kind) for kind in ("episode", "fact", "rule")},
    "memory_store_batch": stored_batch,
    **{f"memory_{change}": record for change in _CHANGES},
    "memory_search": search_results,
    "memory_recall": search_results,
    "memory_get": record,
    "memory_stats": statistics,
    "memory_links": links,
    "memory_history": history,
    "memory_context": plain,
    "memory_run_consolidation": consolidation,
    "memory_run_episode_cleanup": job_result,
    "memory_dead_letters": dead_letters,
    "memory_retract_from": retraction,
    "memory_undo": undo,
}
