"""Export and import of a tenant."""

import asyncio
import base64
import dataclasses
import io
import json
import tracemalloc
from uuid import UUID, uuid4

import asyncpg
import pytest

from butlers.errors import AlreadyExists, Conflict, InvalidInput, Unavailable
from butlers.modules.memory.operations import export_format, export_import
from butlers.modules.memory.store import export_import as store

from .sample_memory import open_memory, sample_tenant


@pytest.fixture(scope="module")
async def here(tmp_path_factory, worker, environment):
    async with open_memory(tmp_path_factory.mktemp("here") / "b", f"port_{worker}", environment) as opened:
        yield opened


@pytest.fixture(scope="module")
async def source(here):
    """Return the caller of a sample tenant and the lines of its export."""
    caller = await sample_tenant(here)
    return caller, await here.export(caller)


def records(lines):
    """Return the exported records without the header and the events of imports."""
    parsed = [json.loads(line) for line in lines[1:]]
    return [record for record in parsed if record.get("event_type") != "memory_imported"]


def kinds(lines, kind):
    return [record for record in records(lines) if record["kind"] == kind]


async def is_empty(here, caller):
    async with here.memory.transaction(caller) as tx:
        return not await store.has_records(tx, caller)


GONE_WITH_THE_DATABASE = {"tenant_id", "embedding", "search_vector", "lease_token", "leased_until"}
TABLES = {
    "embedding_version": "embedding_versions",
    "entity": "entities",
    "episode": "episodes",
    "fact": "facts",
    "rule": "rules",
    "link": "memory_links",
    "rule_application": "rule_applications",
    "event": "memory_events",
}


async def test_every_column_that_can_not_be_derived_is_exported(here, source):
    connection = await asyncpg.connect(here.butler.location.admin_dsn)
    try:
        columns = await connection.fetch(
            "select table_name, column_name from information_schema.columns"
            " where table_name = any ($1) and is_generated = 'NEVER'",
            list(TABLES.values()),
        )
        tables = await connection.fetch(
            "select distinct table_name from information_schema.columns"
            " where table_schema = 'public' and column_name = 'tenant_id'"
        )
    finally:
        await connection.close()
    for kind, table in TABLES.items():
        wanted = {row["column_name"] for row in columns if row["table_name"] == table} - GONE_WITH_THE_DATABASE
        assert wanted, table
        assert set(kinds(source[1], kind)[0]) - {"kind"} == wanted
    not_exported = {"api_keys", "job_runs", "idempotency_keys", "sessions", "consolidation_runs", "edit_history"} | {
        "consolidation_proposals",
        "browser_sessions",
        "session_receipts",
        "session_receipt_lines",
        "leases",
        "rate_budgets",
    }
    views = {"memories", "claimable_episodes"}
    assert {row["table_name"] for row in tables} - not_exported - views == set(TABLES.values())


async def test_the_header_says_what_follows(here, source):
    caller, lines = source
    header = json.loads(lines[0])
    assert (header["format"], header["version"], header["tenant"]) == ("butlers-memory", 1, caller.tenant)
    assert (header["butler"], header["vectors"]) == (here.memory.butler, False)
    assert header["created_at"].endswith("+00:00")
    assert header["counts"] == {kind: len(kinds(lines, kind)) for kind in TABLES}
    assert all(header["counts"].values())


@pytest.mark.parametrize("vectors", [False, True])
async def test_an_export_is_imported_equal_under_another_tenant(here, source, vectors):
    caller, _ = source
    lines = await here.export(caller, vectors=vectors)
    other = here.new_caller()
    done = await here.import_(other, lines)
    back = await here.export(other, vectors=vectors)
    assert records(back) == records(lines)
    assert json.loads(back[0])["tenant"] == other.tenant
    assert done.imported == json.loads(lines[0])["counts"]
    assert set(done.skipped.values()) == {0}
    assert any("embedding" in record for record in records(lines)) is vectors


async def test_an_export_is_imported_equal_in_another_butlers_database(here, source, tmp_path, worker, environment):
    async with open_memory(tmp_path / "there", f"port2_{worker}", environment) as there:
        other = there.new_caller()
        await there.import_(other, source[1])
        assert records(await there.export(other)) == records(source[1])
        found = await there.call(other, "memory_search", "vegetarian", types=["fact"], scope=here.memory.butler)
        assert found[0]["content"] == "eats no meat"


async def test_what_was_imported_is_found_and_believed_as_before(here, source):
    caller, lines = source
    other = here.new_caller()
    await here.import_(other, lines)
    for mode in ("semantic", "keyword", "hybrid", "blended"):
        options = {"mode": mode, "min_confidence": 0, "types": ["fact", "rule"]}
        before = await here.call(caller, "memory_search", "what does Ada eat", **options)
        after = await here.call(other, "memory_search", "what does Ada eat", **options)
        assert [found["id"] for found in after] == [found["id"] for found in before] != []
        for one, two in zip(before, after, strict=True):
            assert one.get("similarity", 0) == pytest.approx(two.get("similarity", 0), abs=1e-4)
            assert one.get("rank") == two.get("rank")
            assert one["confidence"] == pytest.approx(two["confidence"], abs=1e-6)


async def test_an_import_leaves_its_trace_without_a_word_of_what_was_imported(here, source):
    other = here.new_caller()
    await here.import_(other, source[1])
    parsed = [json.loads(line) for line in (await here.export(other))[1:]]
    traces = [record for record in parsed if record.get("event_type") == "memory_imported"]
    ids = {each for trace in traces for each in trace["payload"].get("ids", [])}
    memories = [record for record in parsed if record["kind"] in {"entity", "episode", "fact", "rule"}]
    assert ids == {record["id"] for record in memories}
    (summary,) = [trace["payload"] for trace in traces if "from" in trace["payload"]]
    assert summary["imported"] == json.loads(source[1][0])["counts"]
    assert summary["from"]["tenant"] == source[0].tenant
    assert len({trace["entity_id"] for trace in traces}) == 1
    assert not [record for record in memories if record.get("content", "Grace") in json.dumps(traces)]


def changed(kind, /, **values):
    """Return an edit that changes the first record of a kind; `...` deletes a value."""

    def edit(lines):
        at = next(n for n, line in enumerate(lines) if f'"kind":"{kind}"' in line)
        record = json.loads(lines[at]) | values
        record = {name: value for name, value in record.items() if value is not ...}
        return [*lines[:at], json.dumps(record), *lines[at + 1 :]], at + 1

    return edit


def without_first(kind):
    def edit(lines):
        at = next(n for n, line in enumerate(lines) if f'"kind":"{kind}"' in line)
        return [*lines[:at], *lines[at + 1 :]], None

    return edit


def twice(kind):
    def edit(lines):
        at = next(n for n, line in enumerate(lines) if f'"kind":"{kind}"' in line)
        return [*lines[: at + 1], *lines[at:]], at + 2

    return edit


def headed(**values):
    def edit(lines):
        return [json.dumps(json.loads(lines[0]) | values), *lines[1:]], 1

    return edit


def two_live_facts_with_one_key(lines):
    facts = [n for n, line in enumerate(lines) if '"kind":"fact"' in line]
    records = [json.loads(lines[n]) for n in facts]
    live = next(record for record in records if record["validity"] == "active" and record["entity_id"] is None)
    at = next(n for n, record in zip(facts, records, strict=True) if record["validity"] == "superseded")
    same = ("scope", "subject", "predicate", "validity", "entity_id")
    lines[at] = json.dumps(json.loads(lines[at]) | {name: live[name] for name in same})
    return lines, max(at, next(n for n in facts if live["id"] in lines[n].split('"supersedes_id"')[0])) + 1


ZERO = base64.b64encode(bytes(384 * 4)).decode()
EDITS = {
    "cut off in the middle of a line": lambda lines: ([*lines[:7], lines[7][:40]], 8),
    "cut off at the end of a line": lambda lines: (lines[:9], 9),
    "nothing at all": lambda _: ([], 1),
    "another file": lambda _: (['{"name": "package"}', "{}"], 1),
    "a blank line": lambda lines: ([*lines[:4], "", *lines[4:]], 5),
    "a line that is no object": lambda lines: ([*lines[:4], "[1]", *lines[4:]], 5),
    "a later format": headed(version=2),
    "a header that counts something else": headed(counts={"fact": 1, "wish": 2}),
    "a header that promises more": lambda lines: (headed(counts={"fact": 1})(lines)[0], None),
    "an unknown field": changed("fact", colour="red"),
    "a field that is gone": changed("rule", scope=...),
    "an unknown kind": changed("rule", kind="wish"),
    "a wrong type": changed("episode", reference_count="many"),
    "a number that is none": changed("fact", importance=float("nan")),
    "a number that is none, deep inside": changed("fact", metadata={"a": [float("inf")]}),
    "too much importance": changed("fact", importance=11),
    "an unknown state": changed("fact", validity="doubted"),
    "a moment without an offset": changed("event", occurred_at="2026-01-01T00:00:00"),
    "a blank content": changed("episode", content=" \n"),
    "a NUL": changed("episode", content="a\x00b"),
    "a NUL in a name, deep inside": changed("episode", metadata={"a": [{"b\x00": 1}]}),
    "what is no id": changed("episode", id="first"),
    "an id PostgreSQL does not read": changed("event", id=uuid4().urn),
    "a vector of other dimensions": changed("fact", embedding=base64.b64encode(b"12345678").decode()),
    "a vector that is no base64": changed("fact", embedding="€"),
    "a vector without a direction": changed("fact", embedding=ZERO),
    "an episode that is not there": changed("rule", source_episode_id=str(uuid4())),
    "a fact that is not there": changed("fact", supersedes_id=str(uuid4())),
    "an entity that is not there": changed("fact", entity_id=str(uuid4())),
    "a rule that is not there": changed("rule_application", rule_id=str(uuid4())),
    "a version that is not there": changed("rule", embedding_version_id=str(uuid4())),
    "a record twice": twice("fact"),
    "a link twice": twice("link"),
    "a record that is gone": without_first("event"),
    "another order": lambda lines: ([lines[0], lines[2], lines[1], *lines[3:]], 3),
    "two live facts with one key": two_live_facts_with_one_key,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
async def test_a_broken_file_is_refused_with_its_line_and_nothing_is_written(here, source, edit):
    lines, number = edit(list(source[1]))
    other = here.new_caller()
    with pytest.raises(InvalidInput) as refused:
        await here.import_(other, lines)
    assert refused.value.message.startswith(f"line {len(lines) if number is None else number}: ")
    assert "\n" not in refused.value.message
    assert refused.value.hint.startswith("Nothing was imported.")
    assert await is_empty(here, other)


async def test_a_line_without_an_end_is_not_read_into_memory(here):
    file = io.BytesIO(b" " * (export_format.MAX_LINE_BYTES + 10))
    with pytest.raises(InvalidInput, match="line 1: it is longer than"):
        await export_import.import_file(here.memory, here.new_caller(), file)


async def test_what_a_broken_line_says_can_not_steer_a_terminal(here, source):
    lines, number = changed("fact", **{"\x1b[2J\nbutlers: done": 1})(list(source[1]))
    with pytest.raises(InvalidInput) as refused:
        await here.import_(here.new_caller(), lines)
    assert refused.value.message.startswith(f"line {number}: ")
    assert refused.value.message.isprintable()


async def test_a_fact_may_stand_before_the_one_it_superseded(here, source):
    lines = source[1]
    facts = [n for n, line in enumerate(lines) if '"kind":"fact"' in line]
    turned = [*lines[: facts[0]], *reversed([lines[n] for n in facts]), *lines[facts[-1] + 1 :]]
    other = here.new_caller()
    await here.import_(other, turned)
    assert records(await here.export(other)) == records(lines)
    assert [record for record in kinds(lines, "fact") if record["supersedes_id"]]


async def test_a_tenant_that_is_not_empty_is_left_alone(here, source):
    other = here.new_caller()
    await here.call(other, "memory_store_rule", "Mine")
    before = records(await here.export(other))
    with pytest.raises(AlreadyExists, match=f"the tenant {other.tenant} is not empty"):
        await here.import_(other, source[1])
    assert records(await here.export(other)) == before


async def test_merging_adds_what_is_missing_and_counts_what_was_there(here, source):
    lines = source[1]
    other = here.new_caller()
    mine = (await here.call(other, "memory_store_rule", "Mine"))["id"]
    first = await here.import_(other, lines, merge=True)
    again = await here.import_(other, lines, merge=True)
    counts = json.loads(lines[0])["counts"]
    assert first.imported == counts | {"embedding_version": 0}
    assert set(again.imported.values()) == {0}
    assert again.skipped == counts
    assert {rule["id"] for rule in kinds(await here.export(other), "rule")} == {
        mine,
        *(rule["id"] for rule in kinds(lines, "rule")),
    }


async def test_merging_never_makes_two_live_facts_of_one_key(here, source):
    other = here.new_caller()
    held = (await here.call(other, "memory_store_fact", "Ada", "diet", "eats all", scope=here.memory.butler))["id"]
    before = await here.export(other)
    number = next(n for n, line in enumerate(source[1], 1) if "eats no meat" in line)
    with pytest.raises(Conflict, match=f"line {number}: .* {held}"):
        await here.import_(other, source[1], merge=True)
    assert records(await here.export(other)) == records(before)
    await here.call(other, "memory_forget", "fact", held)
    assert (await here.import_(other, source[1], merge=True)).memories > 0


async def test_of_two_imports_at_once_one_is_refused_and_nothing_is_doubled(here, source):
    other = here.new_caller()
    done = await asyncio.gather(*(here.import_(other, source[1]) for _ in range(2)), return_exceptions=True)
    refused = [each for each in done if isinstance(each, Exception)]
    assert [type(each) in {Conflict, AlreadyExists} for each in refused] == [True]
    assert records(await here.export(other)) == records(source[1])


class WithoutModel:
    """An embedder whose model is missing after a number of batches."""

    def __init__(self, embedder, batches=0):
        self.version, self._embedder, self._batches = embedder.version, embedder, batches

    async def embed_batch(self, texts, **options):
        if texts and self._batches == 0:
            raise Unavailable("the embedding model is not installed")
        self._batches -= 1
        return await self._embedder.embed_batch(texts, **options)


async def test_with_vectors_in_the_file_no_model_is_needed(here, source):
    caller, lines = source
    modelless = dataclasses.replace(
        here, memory=dataclasses.replace(here.memory, embedder=WithoutModel(here.memory.embedder))
    )
    other = here.new_caller()
    with pytest.raises(Unavailable):
        await modelless.import_(other, lines)
    assert await is_empty(here, other)
    lines = await here.export(caller, vectors=True)
    await modelless.import_(other, lines)
    assert records(await here.export(other, vectors=True)) == records(lines)


async def test_a_failure_half_way_leaves_nothing(here, source):
    failing = WithoutModel(here.memory.embedder, batches=2)
    halfway = dataclasses.replace(here, memory=dataclasses.replace(here.memory, embedder=failing))
    other = here.new_caller()
    with pytest.raises(Unavailable):
        await halfway.import_(other, source[1])
    assert failing._batches == 0
    assert await is_empty(here, other)


async def test_vectors_of_another_model_are_computed_again(here, source):
    lines = await here.export(source[0], vectors=True)
    version = str(here.memory.embedder.version.id)
    foreign_version = str(uuid4())
    foreign = [line.replace(version, foreign_version).replace("MiniLM", "OtherLM") for line in lines]
    other = here.new_caller()
    await here.import_(other, foreign)
    back = await here.export(other)
    assert {record["embedding_version_id"] for record in kinds(back, "fact")} == {version}
    assert {record["id"] for record in kinds(back, "embedding_version")} == {version, foreign_version}


async def test_a_vector_survives_to_the_last_bit(here, source):
    vector = await here.memory.embedder.embed("as it is")
    assert list(export_format.decode_vector(export_format.encode_vector(vector))) == vector


MANY = """
    insert into facts (tenant_id, subject, predicate, content, embedding, embedding_version_id, validity)
    select $1, 'subject ' || n, 'says', repeat(md5(n::text) || ' ', 30),
           (select array_agg(sin(n * 0.37 + d)) from generate_series(1, 384) d)::vector(384), $2, 'active'
      from generate_series(1, $3::int) n
"""


async def seeded(here, facts):
    """Return the caller of a tenant with many facts, inserted without a model."""
    caller = here.new_caller()
    version = here.memory.embedder.version
    await here.run(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions) values ($1, $2, $3, $4, $5)",
        *(caller.tenant, version.id, version.model, version.version, version.dimensions),
    )
    await here.run(MANY, caller.tenant, version.id, facts)
    return caller


async def peak_memory(work):
    tracemalloc.start()
    try:
        await work
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
async def test_five_thousand_memories_take_no_more_room_than_a_thousand(here, tmp_path):
    peaks = {}
    for count in (1_000, 5_000):
        caller, other = await seeded(here, count), here.new_caller()
        path = tmp_path / f"{count}.jsonl"
        with path.open("w") as out:
            going = await peak_memory(export_import.export_tenant(here.memory, caller, out.write, vectors=True))
        with path.open("rb") as file:
            coming = await peak_memory(export_import.import_file(here.memory, other, file))
        peaks[count] = (going, coming)
    # Only the id and the key of each record are kept in memory.
    assert peaks[5_000][0] < peaks[1_000][0] * 1.3
    assert peaks[5_000][1] < peaks[1_000][1] * 1.3 + 4_000 * 400
    assert max(peaks[5_000]) < path.stat().st_size


async def test_an_export_is_a_snapshot(here):
    caller = await seeded(here, 700)
    batches: list[list[store.ExportRow]] = []
    async with here.memory.transaction(caller) as tx:
        await store.disable_idle_timeout(tx)
        async for rows in store.stream_records(tx, caller, vectors=False):
            if not batches:
                await here.call(caller, "memory_store_rule", "Come late")
                assert await tx.fetchval("show idle_in_transaction_session_timeout") == "0"
            batches.append(rows)
    seen = [row for rows in batches for row in rows]
    assert [len(rows) for rows in batches] == [500, 202]
    assert seen[0].record["rule"] == 0
    assert {row.kind for row in seen[1:]} == {"embedding_version", "fact"}


async def test_progress_is_told_up_to_the_last_record(here, source):
    updates = []
    await here.import_(here.new_caller(), source[1], progress=lambda done, total: updates.append((done, total)))
    total = len(source[1]) - 1
    assert updates[-1] == (total, total)
    assert [done for done, _ in updates] == sorted({done for done, _ in updates})
    assert UUID(json.loads(source[1][1])["id"])
