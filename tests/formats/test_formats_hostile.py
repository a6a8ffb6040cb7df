"""Readers of other memory systems on files that are huge, deep, broken, wrongly encoded or packed to harm."""

import io
import json
import os
import random
import sqlite3
import tracemalloc
import zipfile
from contextlib import suppress
from typing import Any

import pytest

from butlers.errors import InvalidInput
from butlers.memory_formats import (
    FORMAT_NAMES,
    ForeignEpisode,
    ForeignFact,
    LeftOut,
    Problem,
    json_items,
    read_records,
)
from butlers.memory_formats.json_items import InvalidJson, read_json_items

from .foreign_samples import SAMPLES

FILE_FORMATS = ("mcp-memory", "mem0", "mcp-memory-service", "letta", "graphiti", "lines")


def problems(path, name):
    return [each for each in read_records(path, name) if isinstance(each, Problem)]


def facts(path, name):
    return [each for each in read_records(path, name) if isinstance(each, ForeignFact)]


GARBAGE = {
    "nothing": b"",
    "zeros": bytes(5000),
    "random bytes": random.Random(1).randbytes(5000),
    "half of a document": b'{"results":[{"id":"1","memory":"tea","user_id":"a"},{"id"',
    "deep arrays": b"[" * 200_000,
    "deep arrays that end": b"[" * 5_000 + b"]" * 5_000,
    "deep objects": b"[" + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]",
    "numbers": b"[1e999, -1, 123456789012345678901234567890]",
    "no numbers": b'[NaN, {"memory": Infinity}]',
    "wrong types": json.dumps(
        [{"id": [], "memory": {"a": 1}, "user_id": 5, "type": "entity", "name": ["x"], "observations": "no"}]
    ).encode(),
    "half of a surrogate pair": b'[{"id":"1","memory":"tea \\ud800"}, {"content":"\\udfff","content_hash":"1"}]',
    "a NUL": b'{"type":"entity","name":"a\\u0000b","observations":["c\\u0000d"]}',
}


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_garbage_is_a_problem_or_left_out_and_never_an_error(tmp_path, name, content):
    file = tmp_path / ("conversations.json" if name in {"claude", "chatgpt"} else "a.json")
    file.write_bytes(content)
    for each in read_records(file, name):
        assert not isinstance(each, Problem) or (each.place and each.reason)


@pytest.mark.parametrize("content", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_recognised_or_refused(tmp_path, content):
    file = tmp_path / "a.json"
    file.write_bytes(content)
    with suppress(InvalidInput):
        list(read_records(file))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 4096])
def test_a_document_is_split_alike_wherever_its_chunks_end(size):
    document = json.dumps(
        {
            "results": [{"a": ["]", '"', "\\", '\\"']}, "x,y", 5, [], {}],
            "n": {"deep": [[1], {"k": "}"}]},
            "e": [],
            "z": None,
        }
    ).encode()

    class SmallReads(io.BytesIO):
        def read(self, most=-1):
            return super().read(min(most, size))

    found = [(each.key, each.number, each.parse()) for each in read_json_items(SmallReads(document))]
    assert found == [
        ("results", 1, {"a": ["]", '"', "\\", '\\"']}),
        ("results", 2, "x,y"),
        ("results", 3, 5),
        ("results", 4, []),
        ("results", 5, {}),
        ("n", 0, {"deep": [[1], {"k": "}"}]}),
        ("z", 0, None),
    ]


@pytest.mark.parametrize(
    "document", [b"", b"[", b"[1", b"[1}", b'{"a":[1}', b'"x"', b"[1][2]", b"[1] x", b'{"a" [1]}', b"{]"]
)
def test_a_document_that_is_cut_off_or_crooked_is_refused(document):
    with pytest.raises(InvalidJson):
        [each.parse() for each in read_json_items(io.BytesIO(document))]


def test_an_item_that_is_too_long_is_one_problem_and_the_others_are_read(tmp_path):
    long = json_items.MAX_ITEM_BYTES + 10
    file = tmp_path / "mem0.json"
    with file.open("wb") as out:
        out.write(b'[{"id":"1","memory":"tea","user_id":"a"},{"id":"2","memory":"')
        out.write(b"x" * long)
        out.write(b'"},{"id":"3","memory":"milk","user_id":"a"}]')
    assert [each.content for each in facts(file, "mem0")] == ["tea", "milk"]
    (problem,) = problems(file, "mem0")
    assert "longer than" in problem.reason
    lines = tmp_path / "memory.jsonl"
    lines.write_bytes(
        b'{"type":"entity","name":"' + b"x" * long + b'"}\n{"type":"entity","name":"A","observations":["b"]}'
    )
    assert [each.content for each in facts(lines, "mcp-memory")] == ["b"]


def test_a_large_export_is_read_in_little_memory(tmp_path):
    file = tmp_path / "conversations.json"
    node: dict[str, Any] = {"id": "a", "parent": None, "children": [], "message": None}
    said = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["why? " * 2000]}}
    conversation = {
        "conversation_id": "N",
        "title": "t",
        "mapping": {"a": node | {"message": said}},
        "current_node": "a",
    }
    one = json.dumps(conversation)
    with file.open("w") as out:
        out.write("[" + ",".join(one.replace('"N"', f'"{n}"') for n in range(4000)) + "]")
    assert file.stat().st_size > 40_000_000
    tracemalloc.start()
    number = sum(isinstance(each, ForeignEpisode) for each in read_records(file, "chatgpt"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert number == 4000
    assert peak < 5_000_000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("name", FILE_FORMATS)
def test_a_byte_order_mark_says_the_encoding(tmp_path, name, encoding):
    path = SAMPLES[name](tmp_path, 2)
    expected = facts(path, name)
    text = path.read_text()
    path.write_bytes(
        text.encode("utf-16") if encoding == "utf-16" else ("\ufeff" + text).encode(encoding.removesuffix("-sig"))
    )
    assert facts(path, name) == expected != []


@pytest.mark.parametrize("name", ["mcp-memory", "mem0", "lines"])
def test_a_text_in_another_encoding_is_a_problem_of_its_line(tmp_path, name):
    file = tmp_path / "a.json"
    good = {
        "mcp-memory": '{"type":"entity","name":"A","observations":["b"]}',
        "mem0": '[{"id":"1","memory":"b","user_id":"a"}]',
    }
    file.write_bytes((good.get(name, "b").replace("b", "Tür")).encode("latin-1"))
    assert [each.reason for each in problems(file, name)] == ["it is not UTF-8"]


def test_a_tree_of_messages_that_is_a_circle_ends(tmp_path):
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["why?"]}}
    nodes = {name: {"id": name, "parent": other, "message": message} for name, other in ("ab", "ba")}
    (tmp_path / "conversations.json").write_text(json.dumps([{"id": "1", "mapping": nodes, "current_node": "a"}]))
    (episode,) = read_records(tmp_path, "chatgpt")
    assert episode.content == "Asked: why? / why?"


def test_a_zip_bomb_is_a_problem_and_not_unpacked(tmp_path):
    file = tmp_path / "bomb.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 60_000_000 + b"]")
    (problem,) = read_records(file, "chatgpt")
    assert "times its size" in problem.reason


def test_a_broken_archive_is_a_problem_of_its_file(tmp_path):
    file = SAMPLES["chatgpt"](tmp_path, 50)
    raw = bytearray(file.read_bytes())
    raw[200:400] = random.Random(2).randbytes(200)
    file.write_bytes(raw)
    assert [each for each in read_records(file, "chatgpt") if isinstance(each, Problem)]
    file.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(InvalidInput, match="broken zip archive"):
        list(read_records(file, "chatgpt"))


def test_an_archive_with_a_list_of_files_that_is_too_long_is_refused(tmp_path):
    file = tmp_path / "many.zip"
    file.write_bytes(b"PK\x03\x04" + bytes(30) + b"PK\x05\x06" + bytes(8) + (10**9).to_bytes(4, "little") + bytes(6))
    with pytest.raises(InvalidInput, match="too many files"):
        list(read_records(file, "claude"))


def test_links_pipes_and_circles_in_a_folder_are_not_followed(tmp_path):
    secret = tmp_path / "secret.md"
    secret.write_text("- [fact] secret\n")
    folder = tmp_path / "notes"
    folder.mkdir()
    SAMPLES["basic-memory"](folder)
    (folder / "link.md").symlink_to(secret)
    (folder / "circle").symlink_to(folder)
    os.mkfifo(folder / "pipe.md")
    records = list(read_records(folder, "basic-memory"))
    assert "secret" not in repr(records)
    assert [each for each in records if isinstance(each, Problem)] == []


@pytest.mark.parametrize(
    "head",
    ["a: [", "a: &a [*a, *a]", "- 1\n- 2", "!!python/object:os.system {}", "x" * 20_000, "[" * 3000, "2026-99-99: 1"],
)
@pytest.mark.parametrize("name", ["basic-memory", "claude-code"])
def test_front_matter_that_is_no_mapping_is_a_problem_or_nothing(tmp_path, name, head):
    (tmp_path / "a.md").write_text(f"---\n{head}\n---\n- [fact] Tea is green\n")
    for each in read_records(tmp_path, name):
        assert isinstance(each, Problem) or "python" not in repr(each)


def test_a_view_in_a_database_is_not_read(tmp_path):
    file = tmp_path / "evil.db"
    database = sqlite3.connect(file)
    database.execute(
        "create view memories as with recursive n(content_hash, content) as"
        " (select 1, 'x' union all select content_hash + 1, content from n) select * from n"
    )
    database.close()
    assert problems(file, "mcp-memory-service")
    file.write_bytes(b"SQLite format 3\x00" + random.Random(3).randbytes(5000))
    with pytest.raises(InvalidInput, match="SQLite"):
        list(read_records(file, "mem0"))


def test_a_second_observation_with_the_same_text_is_a_copy_by_its_id(tmp_path):
    line = {"type": "entity", "name": "A", "observations": ["b", "b", " ", None]}
    (tmp_path / "memory.jsonl").write_text(json.dumps(line))
    records = list(read_records(tmp_path / "memory.jsonl"))
    assert len({each.id for each in records if isinstance(each, ForeignFact)}) == 1
    assert LeftOut("a blank observation") in records
