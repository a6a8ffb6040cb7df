"""Readers of Claude Code: its memory folders as facts and rules, and its transcripts as episodes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from butlers.memory_formats.documents import MarkdownText, markdown_texts
from butlers.memory_formats.records import (
    ForeignEpisode,
    ForeignFact,
    ForeignLink,
    ForeignRecord,
    ForeignRule,
    LeftOut,
    Problem,
)
from butlers.memory_formats.source import Source, SourceFile
from butlers.memory_formats.values import mapping, moment, slug, text
from butlers.session_summary import summarize_session
from butlers.transcripts import FORMATS, read_transcript

_TYPES = {"user", "feedback", "project", "reference"}
_INDEX = "MEMORY.md"
_REFERENCE = re.compile(r"\[\[([^\[\]|]{1,200})(?:\|[^\[\]]*)?\]\]")
_WORKING_FOLDER = re.compile(rb'"cwd"\s*:\s*"((?:[^"\\]|\\.){1,1000})"')
_TIMESTAMP = re.compile(rb'"timestamp"\s*:\s*"([^"]{10,40})"')
_MAX_PROMPTS = 5


def is_claude_code(source: Source) -> bool:
    """Return whether a folder has memories of Claude Code."""
    found = list(source.files("*.md")) if source.is_folder else []
    in_memory = any("memory" in PurePosixPath(each.name).parts[:-1] for each in found)
    return in_memory or any(each.name == _INDEX for each in found)


def read_claude_code(source: Source) -> Iterator[ForeignRecord]:
    """Yield the memories of a memory folder, of a project's folder or of all projects."""
    projects: dict[str, str] = {}
    for document in markdown_texts(source):
        if isinstance(document, Problem):
            yield document
            continue
        place = PurePosixPath(document.file.name)
        if place.name == _INDEX:
            yield LeftOut("MEMORY.md, the index of the other files")
        elif "memory" in place.parts[:-1] or not _has_projects(source):
            slug_of_project = _project_slug(source, place)
            if slug_of_project not in projects:
                projects[slug_of_project] = _project_name(source, slug_of_project)
            yield from _read_memory(document, slug_of_project, projects[slug_of_project])
        else:
            yield LeftOut("a Markdown file outside a memory folder")


def _has_projects(source: Source) -> bool:
    return any((source.path / name).is_dir() for name in ("projects", "memory"))


def _project_slug(source: Source, place: PurePosixPath) -> str:
    """Return the name of the folder that has the memory folder: the working folder with hyphens."""
    parts = (*source.path.resolve().parts, *place.parts[:-1])
    return parts[len(parts) - 2 - parts[::-1].index("memory")] if "memory" in parts[1:] else parts[-1]


def _project_name(source: Source, slug_of_project: str) -> str:
    """Return the last part of the working folder, as a transcript names it; else the slug."""
    here = source.path.resolve()
    for folder in (here.parent, here, here / slug_of_project, here / "projects" / slug_of_project):
        for path in sorted(folder.glob("*.jsonl"))[:3] if folder.name == slug_of_project else []:
            if found := _WORKING_FOLDER.search(SourceFile(path.name, path).head()):
                return PurePosixPath(found[1].decode("utf-8", "replace")).name or slug_of_project
    return slug_of_project


def _read_memory(document: MarkdownText, project: str, project_name: str) -> Iterator[ForeignRecord]:
    details = mapping(document.head.get("metadata"))
    kind = text(details.get("type")) or text(document.head.get("type"))
    name = text(document.head.get("name")) or PurePosixPath(document.file.name).stem
    content = "\n".join(part for part in (text(document.head.get("description")), document.body.strip()) if part)
    if not content:
        yield LeftOut("a memory without a text")
        return
    updated_at = moment(details.get("modified")) or document.file.modified_at
    id_ = f"{project}/{name}"
    metadata = {"type": kind, "name": name, "project": project}
    if kind == "feedback":
        yield ForeignRule(id=id_, content=content, updated_at=updated_at, metadata=metadata)
    else:
        subject = "user" if kind == "user" else project_name
        yield ForeignFact(
            id=id_,
            subject=subject,
            predicate=slug(name),
            content=content,
            updated_at=updated_at,
            tags=(kind,) if kind in _TYPES else (),
            metadata=metadata,
        )
    for other in dict.fromkeys(_REFERENCE.findall(document.body)):
        if other.strip() != name:
            yield ForeignLink(id_, f"{project}/{other.strip()}")


def is_claude_code_sessions(source: Source) -> bool:
    """Return whether a file is a transcript, or a folder has transcripts."""
    for file in source.files("*.jsonl"):
        head = file.head()
        return b'"sessionId"' in head and (b'"cwd"' in head or b'"isSidechain"' in head)
    return False


def read_claude_code_sessions(source: Source) -> Iterator[ForeignRecord]:
    """Yield an episode for each transcript, as the hooks would have stored it."""
    if source.archive is not None:
        yield Problem(source.name, "transcripts are read from a folder, not from an archive")
        return
    for file in source.files("*.jsonl"):
        yield _read_session(file.path)


def _read_session(path: Path) -> ForeignRecord:
    transcript = read_transcript(path, FORMATS["claude"])
    prompts = transcript.prompts
    if not prompts:
        return LeftOut("a transcript without a prompt")
    file = SourceFile(path.name, path)
    head = file.head()
    started, folder = _TIMESTAMP.search(head), _WORKING_FOLDER.search(head)
    return ForeignEpisode(
        id=path.stem,
        session=path.stem,
        content=summarize_session(
            " / ".join(prompts[:_MAX_PROMPTS]),
            transcript.tools,
            "\n".join(transcript.injected),
            answer=transcript.answer,
        ),
        created_at=(moment(started[1].decode("ascii", "replace")) if started else None) or file.modified_at,
        metadata=_metadata(len(prompts), folder),
    )


def _metadata(prompts: int, folder: re.Match[bytes] | None) -> Mapping[str, object]:
    return {"prompts": prompts} | ({"cwd": folder[1].decode("utf-8", "replace")} if folder else {})
