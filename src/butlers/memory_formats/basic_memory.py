"""Reader of basic-memory: a folder of Markdown notes with observations and relations."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from butlers.memory_formats.documents import MarkdownText, markdown_texts
from butlers.memory_formats.records import ForeignEntity, ForeignEpisode, ForeignFact, ForeignRecord, LeftOut, Problem
from butlers.memory_formats.source import Source
from butlers.memory_formats.values import moment, slug, text, texts

_ITEM = re.compile(r"\s*[-*+]\s+(.*)")
_OBSERVATION = re.compile(r"\[([^\[\]()]+)\]\s+(.+)")
_RELATION = re.compile(r"(.{0,200}?)\s*\[\[([^\[\]]{1,300})\]\]\s*(?:\(([^()]*)\))?\s*\Z")
_PROSE_LINK = re.compile(r"\[\[([^\[\]]{1,300})\]\]")
_CONTEXT = re.compile(r"\s*\(([^()]*)\)\s*\Z")
_TAG = re.compile(r"(?:(?<=\s)|\A)#([\w/-]+)")
_CHECKBOX = re.compile(r"[ xX/\-!?>*]?\Z")
_TIMESTAMP = re.compile(r"\d{1,4}([:.-]\d+)+\Z")
_FENCE = ("```", "~~~")
_LISTS = {"## observations", "## relations"}
_MAX_NOTE_CHARACTERS = 2_000
_MARKS = (b"\npermalink:", b"\n## Observations", b"\n## Relations")


@dataclass(slots=True)
class _Note:
    observations: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of a category and a text."""
    relations: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind, target and context of each."""
    prose: list[str] = field(default_factory=list)


def is_basic_memory(source: Source) -> bool:
    """Return whether one of the first Markdown files has a permalink, observations or relations."""
    if not source.is_folder and not source.name.endswith((".md", ".zip")):
        return False
    found = [file for file, _ in zip(source.files("*.md"), range(50), strict=False)]
    return any(mark in file.head() for file in found for mark in _MARKS)


def read_basic_memory(source: Source) -> Iterator[ForeignRecord]:
    """Yield each note as an entity, its observations and relations as facts, and its text as a fact or an episode."""
    for document in markdown_texts(source):
        if isinstance(document, Problem):
            yield document
        else:
            yield from _read_note(document)


def _read_note(document: MarkdownText) -> Iterator[ForeignRecord]:
    head, path = document.head, PurePosixPath(document.file.name)
    title, kind = text(head.get("title")) or path.stem, text(head.get("type")) or "note"
    permalink = text(head.get("permalink")) or str(path.with_suffix(""))
    aliases = (permalink,) if permalink != title else ()
    yield ForeignEntity(name=title, aliases=aliases, metadata={"type": kind, "permalink": permalink})
    created_at, updated_at = moment(head.get("created")), moment(head.get("modified")) or document.file.modified_at
    for record in _read_body(document, title, kind, permalink):
        if isinstance(record, LeftOut):
            yield record
        else:
            yield replace(record, created_at=created_at, updated_at=updated_at)


def _read_body(
    document: MarkdownText, title: str, kind: str, permalink: str
) -> Iterator[ForeignFact | ForeignEpisode | LeftOut]:
    note, tags = _parse(document.body, title), texts(document.head.get("tags"))
    for category, said in note.observations:
        yield _observation(permalink, title, category, said, tags)
    for relation in note.relations:
        yield _relation(permalink, title, *relation)
    prose = "\n".join(note.prose).strip()
    if prose and (kind == "conversation" or len(prose) > _MAX_NOTE_CHARACTERS):
        yield ForeignEpisode(id=permalink, content=f"{title}\n{prose}")
    elif prose:
        yield ForeignFact(id=permalink, subject=title, predicate="note", content=prose, entity=title, tags=tags)


def _observation(
    permalink: str, title: str, category: str, content: str, tags: tuple[str, ...]
) -> ForeignFact | LeftOut:
    """Return an observation; its context, in brackets at the end, goes to the metadata."""
    context = _CONTEXT.search(content)
    said = content[: context.start()] if context else content
    if not said.strip():
        return LeftOut("an observation without a text")
    return ForeignFact(
        id=f"{permalink}\n{category}\n{content}",
        subject=title,
        predicate=slug(category),
        content=said,
        entity=title,
        tags=tuple(dict.fromkeys([*tags, *_TAG.findall(said)])),
        metadata={"category": category} | ({"context": context[1]} if context else {}),
    )


def _relation(permalink: str, title: str, kind: str, target: str, context: str) -> ForeignFact:
    return ForeignFact(
        id=f"{permalink}\n{kind}\n{target}",
        subject=title,
        predicate=slug(kind, "links_to"),
        content=target,
        entity=title,
        tags=("relation",),
        metadata={"relation": kind, "to_entity": target} | ({"context": context} if context else {}),
    )


def _parse(body: str, title: str) -> _Note:
    """Return the observations, the relations and the remaining text of a note."""
    note = _Note()
    is_code = False
    for line in body.splitlines():
        is_fence = line.lstrip().startswith(_FENCE)
        is_code = is_code != is_fence
        item = None if is_code or is_fence else _ITEM.match(line)
        if item is None or not _add_item(note, item[1].strip()):
            heading = line.strip().lower()
            if heading not in _LISTS and heading != f"# {title.lower()}":
                note.prose.append(line)
            if not is_code and not is_fence:
                note.relations += [("links_to", each.strip(), "") for each in _PROSE_LINK.findall(line)]
    return note


def _add_item(note: _Note, item: str) -> bool:
    """Add a list item that is an observation or a relation; return whether it is one."""
    observation = _OBSERVATION.match(item)
    if observation and not _CHECKBOX.match(observation[1].strip()) and not _TIMESTAMP.match(observation[1].strip()):
        note.observations.append((observation[1].strip(), observation[2].strip()))
        return True
    relation = _RELATION.match(item)
    if relation and not observation:
        note.relations.append((relation[1].strip() or "relates_to", relation[2].strip(), (relation[3] or "").strip()))
        return True
    if _TAG.search(item) and not observation:
        note.observations.append(("Note", item))
        return True
    return False
