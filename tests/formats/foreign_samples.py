"""Realistic files of every format that can be imported, of any number of memories."""

import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

MOMENT = "2026-03-02T08:11:09.123456+00:00"
SECONDS = 1772438400.12


def mcp_memory(folder: Path, number: int = 1) -> Path:
    lines: list[dict[str, Any]] = [
        {
            "type": "entity",
            "name": f"Ann_Weber_{n}",
            "entityType": "person",
            "observations": ["Prefers tea", f"Lives in house {n} of Graz"],
        }
        for n in range(number)
    ]
    lines.append({"type": "entity", "name": "Shop", "entityType": "project", "observations": ["Uses PostgreSQL 18"]})
    lines.append({"type": "relation", "from": "Ann_Weber_0", "to": "Shop", "relationType": "maintains"})
    lines.append({"type": "relation", "from": "Ann_Weber_0", "to": "Nobody", "relationType": "maintains"})
    file = folder / "memory.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def claude_code(folder: Path, number: int = 1) -> Path:
    project = folder / "projects" / "-code-shop"
    memory = project / "memory"
    memory.mkdir(parents=True)
    (project / "9a8b.jsonl").write_text(json.dumps({"type": "user", "cwd": "/code/shop", "sessionId": "9a8b"}) + "\n")
    (memory / "MEMORY.md").write_text("- [Prefers pnpm](prefers-pnpm.md) — never npm\n")
    for n in range(number):
        (memory / f"prefers-pnpm-{n}.md").write_text(
            f"---\nname: prefers-pnpm-{n}\ndescription: Ann wants pnpm, never npm, in JS repo {n}\nmetadata:\n"
            f"  node_type: memory\n  type: feedback\n  modified: 2026-10-02T10:00:00.000Z\n---\n\nUse pnpm.\n"
            "**Why:** the lockfile is pnpm's. See [[shop-toolchain]] and [[not-there]].\n"
        )
    (memory / "shop-toolchain.md").write_text(
        "---\nname: shop-toolchain\ntype: project\n---\nThe shop is built with vite.\n"
    )
    (memory / "ann.md").write_text("---\nname: role\nmetadata:\n  type: user\n---\nAnn is the owner of the shop.\n")
    return folder


def claude_code_sessions(folder: Path, number: int = 1) -> Path:
    project = folder / "projects" / "-code-shop"
    project.mkdir(parents=True)
    for n in range(number):
        session = f"0f0e0d0c-0b0a-4908-8706-{n:012d}"
        head = {"sessionId": session, "cwd": "/code/shop", "timestamp": "2026-10-02T10:00:00.000Z"}
        entries = [
            head | {"type": "user", "message": {"role": "user", "content": f"Fix the test of part {n}"}},
            head
            | {
                "type": "assistant",
                "message": {
                    "role": "assistant",
                    "content": [{"type": "text", "text": f"The clock was mocked in {n}."}],
                },
            },
        ]
        (project / f"{session}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (project / "empty.jsonl").write_text("{}\n")
    return folder


def mem0(folder: Path, number: int = 1) -> Path:
    def memory(n: int, **values: Any) -> dict[str, Any]:
        return {
            "id": f"892db2ae-06d9-49e5-8b3e-{n:012d}",
            "memory": f"Ann prefers tea of kind {n}",
            "hash": f"hash-{n}",
            "created_at": MOMENT,
            "updated_at": None,
            "user_id": "ann",
            "run_id": "r1",
            "expiration_date": None,
            "metadata": {"category": "preferences"},
        } | values

    results = [memory(n) for n in range(number)]
    results.append(memory(10**6, hash="hash-0"))
    results.append(memory(10**6 + 1, expiration_date="2020-01-01"))
    results.append(memory(10**6 + 2, memory="", hash="none"))
    relations = [{"source": "ann", "relationship": "lives in", "destination": "Graz"}]
    file = folder / "mem0.json"
    file.write_text(json.dumps({"results": results, "relations": relations}))
    return file


def mem0_history(folder: Path) -> Path:
    file = folder / "history.db"
    database = sqlite3.connect(file)
    database.execute(
        "create table history (id text, memory_id text, old_memory text, new_memory text, event text,"
        " created_at text, updated_at text, is_deleted integer, actor_id text, role text)"
    )
    rows = [
        ("1", "m1", None, "Ann drinks coffee", "ADD", "2026-01-01T00:00:00", None, 0),
        ("2", "m1", "Ann drinks coffee", "Ann drinks tea", "UPDATE", "2026-01-01T00:00:00", "2026-02-01T00:00:00", 0),
        ("3", "m2", None, "Ann owns a dog", "ADD", "2026-01-01T00:00:00", None, 0),
        ("4", "m2", "Ann owns a dog", None, "DELETE", "2026-01-02T00:00:00", None, 1),
    ]
    database.executemany("insert into history values (?, ?, ?, ?, ?, ?, ?, ?, null, null)", rows)
    database.commit()
    database.close()
    return file


def claude(folder: Path, number: int = 1) -> Path:
    conversations = [
        {
            "uuid": f"c{n}",
            "name": f"Trip {n}",
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "chat_messages": [
                {
                    "sender": "human",
                    "text": "flat",
                    "content": [{"type": "text", "text": f"When does train {n} go?"}],
                },
                {"sender": "assistant", "text": "At 9:12.", "content": [{"type": "thinking", "thinking": "hm"}]},
            ],
        }
        for n in range(number)
    ]
    conversations.append({"uuid": "empty", "name": "", "chat_messages": []})
    memories = [
        {
            "conversations_memory": "**Work context**\n\nAnn is a developer in Graz.\n\n"
            "**Personal context**\n\nDrinks tea.",
            "project_memories": {"p1": "**Purpose & context**\n\nShop relaunch."},
            "account_uuid": "a",
        }
    ]
    project = {"uuid": "p1", "name": "Shop", "prompt_template": "Answer in German.", "docs": [{"uuid": "d"}]}
    file = folder / "claude.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(conversations))
        archive.writestr("memories.json", json.dumps(memories))
        archive.writestr("projects/p1.json", json.dumps(project))
        archive.writestr("users.json", json.dumps([{"uuid": "a", "full_name": "Ann"}]))
    return file


def chatgpt(folder: Path, number: int = 1) -> Path:
    def node(name: str, parent: str | None, role: str, said: str, **values: Any) -> dict[str, Any]:
        message = {
            "author": {"role": role},
            "create_time": SECONDS,
            "content": {"content_type": "text", "parts": [said]},
            "recipient": "all",
            "metadata": {},
        }
        return {"id": name, "parent": parent, "children": [], "message": message | values}

    def conversation(n: int) -> dict[str, Any]:
        nodes = [
            {"id": "root", "parent": None, "children": ["u"], "message": None},
            node("s", "root", "system", "hidden"),
            node("u", "s", "user", f"When does train {n} go?"),
            node("old", "u", "assistant", "At 8."),
            node("b", "u", "assistant", "Ann takes the train.", recipient="bio"),
            node("n3", "b", "assistant", f"Train {n} goes at 9:12."),
        ]
        return {
            "title": f"Trip {n} to Graz",
            "create_time": SECONDS,
            "update_time": SECONDS,
            "conversation_id": f"68a1-{n}",
            "current_node": "n3",
            "mapping": {each["id"]: each for each in nodes},
        }

    file = folder / "chatgpt.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([conversation(n) for n in range(number)]))
        archive.writestr("chat.html", "<html>")
    return file


def basic_memory(folder: Path, number: int = 1) -> Path:
    for n in range(number):
        (folder / f"deploy-{n}.md").write_text(
            f"---\ntitle: Shop deploy {n}\ntype: note\npermalink: shop/deploy-{n}\ntags: [shop, deploy]\n"
            "created: 2026-03-02\n---\n"
            f"# Shop deploy {n}\nFree text stays text.\n\n- [ ] a task\n\n## Observations\n"
            "- [decision] Deploy only from main #release (after the March outage)\n"
            "- [decision] Never on a Friday\n\n"
            "## Relations\n- part_of [[Shop]]\n- depends_on [[PostgreSQL 18]] (since)\n"
        )
    return folder


def mcp_memory_service(folder: Path, number: int = 1) -> Path:
    memories = [
        {
            "content": f"Use pnpm in the shop repo {n}",
            "content_hash": f"9c11-{n}",
            "tags": ["shop", "decision", "source:ws1"],
            "created_at": SECONDS,
            "updated_at": SECONDS,
            "memory_type": "decision",
            "metadata": {"quality_score": 0.8},
        }
        for n in range(number)
    ]
    memories.append(memories[0] | {"content_hash": "e", "memory_type": "session", "content": "We met Ann."})
    file = folder / "service.json"
    file.write_text(json.dumps({"export_metadata": {"exporter_version": "5.0.1"}, "memories": memories}))
    return file


def mcp_memory_service_database(folder: Path) -> Path:
    file = folder / "sqlite_vec.db"
    database = sqlite3.connect(file)
    database.execute(
        "create table memories (id integer primary key, content_hash text unique, content text, tags text,"
        " memory_type text, metadata text, created_at real, updated_at real, deleted_at real)"
    )
    database.execute("create table memory_graph (source_hash text, target_hash text, relationship_type text)")
    add = "insert into memories (content_hash, content, tags, memory_type, metadata, created_at, deleted_at)"
    for hash_, deleted in (("h1", None), ("h2", None), ("h3", SECONDS)):
        database.execute(
            f"{add} values (?, ?, 'shop,untagged', 'pattern', '{{}}', ?, ?)",
            (hash_, f"About {hash_}", SECONDS, deleted),
        )
    database.execute("insert into memory_graph values ('h1', 'h2', 'contradicts'), ('h1', 'h3', 'follows')")
    database.commit()
    database.close()
    return file


def letta(folder: Path, number: int = 1) -> Path:
    value = "\n".join(["Name: Ann", *(f"- Likes tea of kind {n}" for n in range(number))])
    agent = {
        "name": "helper",
        "block_ids": ["block-0", "block-1"],
        "tool_exec_environment_variables": {"KEY": "secret"},
        "llm_config": {},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello"}], "created_at": MOMENT},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello Ann"}]},
        ],
    }
    blocks = [
        {"id": "block-0", "label": "human", "value": value},
        {"id": "block-1", "label": "persona", "value": "You are brief."},
        {"id": "block-2", "label": "empty", "value": ""},
    ]
    file = folder / "helper.af"
    # As some files of the wild are: JSON in JSON.
    file.write_text(json.dumps(json.dumps({"agents": [agent], "blocks": blocks, "tools": [{"source_code": "x"}]})))
    return file


def graphiti(folder: Path, number: int = 1) -> Path:
    lines: list[dict[str, Any]] = [
        {"kind": "entity", "uuid": "e1", "name": "Ann", "labels": ["Entity", "Person"], "summary": "A developer"},
        {"kind": "entity", "uuid": "e2", "name": "Graz", "labels": ["Entity"]},
        {"kind": "episode", "uuid": "s1", "content": "user: I moved to Graz", "valid_at": MOMENT},
    ]
    edge = {
        "kind": "edge",
        "source_node_uuid": "e1",
        "target_node_uuid": "e2",
        "valid_at": MOMENT,
        "episodes": ["s1"],
    }
    lines += [edge | {"uuid": f"d{n}", "name": "LIVES_IN", "fact": f"Ann lives in Graz, {n}"} for n in range(number)]
    lines.append(edge | {"uuid": "old", "name": "LIVES_IN", "fact": "Ann lives in Linz", "invalid_at": MOMENT})
    file = folder / "graph.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def lines(folder: Path, number: int = 1) -> Path:
    file = folder / "memories.txt"
    file.write_text("- Ann drinks tea\n\n" + "".join(f"* Ann has seen film {n}\n" for n in range(number)))
    return file


Sample = Callable[..., Path]
SAMPLES: Mapping[str, Sample] = {
    "mcp-memory": mcp_memory,
    "claude-code": claude_code,
    "claude-code-sessions": claude_code_sessions,
    "mem0": mem0,
    "claude": claude,
    "chatgpt": chatgpt,
    "basic-memory": basic_memory,
    "mcp-memory-service": mcp_memory_service,
    "letta": letta,
    "graphiti": graphiti,
    "lines": lines,
}
