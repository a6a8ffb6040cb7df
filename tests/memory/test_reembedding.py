"""Re-embedding with another model: searches compare vectors of one version, and no memory is lost."""
# ruff: noqa: S608 — the tables and columns are constants of the tests

import asyncio
import json
import math
import random
import shutil
from dataclasses import replace
from uuid import UUID, uuid4

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from butlers import app
from butlers.caller import Caller
from butlers.errors import ConfigurationFault, Unavailable
from butlers.modules.memory import minilm
from butlers.modules.memory.domain.model import MemoryType, NewFact, NewRule, SearchMode, fact_text
from butlers.modules.memory.embedding import EmbeddingEngine
from butlers.modules.memory.onnx_folder import OnnxFolder
from butlers.modules.memory.operations import decay_sweep, management, reading, reembedding, writing
from butlers.modules.memory.operations.batching import retry_when_busy
from memory.memory_fixtures import REQUEST, write_butler
from memory.scripted_model import separate_butler, store_episodes

WORDS = 997
TABLES = ("facts", "rules", "episodes")


def word_vectors(seed, dimensions=384):
    return np.random.default_rng(seed).standard_normal((WORDS, dimensions)).astype(np.float32)


def write_model(at, name="bag-of-words", *, seed=1, dimensions=384, pooled=False, longest=None, places=512):
    """Write the folder of a model in which each word has a vector and a text the vectors of its words.

    `longest` is the number of words the folder claims to read, `places` the number it can.
    """
    model_folder = at / name
    model_folder.mkdir(exist_ok=True)
    shape = ["texts", "words"]
    constants = {"number": np.array(WORDS), "last": np.array([-1]), "words": np.array([1]), "one": np.array(1)}
    constants["places"] = np.zeros((places + 1, dimensions), np.float32)
    nodes = [
        helper.make_node("Mod", ["input_ids", "number"], ["row"]),
        helper.make_node("Gather", ["table", "row"], ["meanings"]),
        helper.make_node("CumSum", ["attention_mask", "one"], ["place"]),
        helper.make_node("Gather", ["places", "place"], ["placing"]),
        helper.make_node("Add", ["meanings", "placing"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["there"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["there", "last"], ["each"]),
        helper.make_node("Mul", ["vectors", "each"], ["last_hidden_state"]),
    ]
    if pooled:
        nodes += [helper.make_node("ReduceSum", ["last_hidden_state", "words"], ["sentence_embedding"], keepdims=0)]
    wanted = ("sentence_embedding", ["texts", dimensions]) if pooled else ("last_hidden_state", [*shape, dimensions])
    graph = helper.make_graph(
        nodes,
        "words",
        [helper.make_tensor_value_info(each, TensorProto.INT64, shape) for each in ("input_ids", "attention_mask")],
        [helper.make_tensor_value_info(wanted[0], TensorProto.FLOAT, wanted[1])],
        [
            numpy_helper.from_array(word_vectors(seed, dimensions), "table"),
            *(numpy_helper.from_array(value, each) for each, value in constants.items()),
        ],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), model_folder / "model.onnx")
    shutil.copy(minilm.model_folder(at) / "tokenizer.json", model_folder)
    if longest:
        (model_folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))
    return model_folder


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """The folder of another model."""
    return write_model(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def other_engine(model_folder, home):
    """The engine of the other model."""
    return EmbeddingEngine(home / "models", OnnxFolder(model_folder))


@pytest.fixture
def renewed(memory, other_engine):
    """The memory after the change of its model."""
    return replace(memory, embedder=other_engine)


def normalize(vector):
    return np.asarray(vector) / np.linalg.norm(vector)


async def vectors(archive, tenant, table):
    """Return the text, version and vector of each memory, by id."""
    text = "array[subject, predicate, content]" if table == "facts" else "array[content]"
    rows = await archive.rows(
        f"select id::text, {text} as text, embedding_version_id as version, embedding::text as vector"
        f" from {table} where tenant_id = $1",
        tenant,
    )
    return {row["id"]: (tuple(row["text"]), row["version"], json.loads(row["vector"] or "null")) for row in rows}


async def assert_embedded_by(engine, archive, tenant):
    """Assert that every memory of a tenant has the vector of that engine."""
    seen = 0
    for table in TABLES:
        rows = (await vectors(archive, tenant, table)).values()
        texts = [fact_text(*text) if table == "facts" else text[0] for text, _, _ in rows]
        for (text, version, vector), expected in zip(rows, await engine.embed_batch(texts), strict=True):
            assert version == engine.version.id
            assert math.dist(vector, expected) < 1e-3, text
            seen += 1
    return seen


async def insert_memories(archive, memory, tenant, number, table="facts"):
    """Insert memories with texts of different lengths, embedded by the memory's engine."""
    await archive.rows(
        "insert into embedding_versions (tenant_id, id, model, version, dimensions)"
        " values ($1, $2, 'all-MiniLM-L6-v2', '1', 384) on conflict do nothing returning id",
        tenant,
        memory.embedder.version.id,
    )
    more = {
        "facts": ("subject, predicate, ", "'thing ' || n, 'is', "),
        "rules": ("", ""),
        "episodes": ("butler, ", "'general', "),
    }[table]
    rows = await archive.rows(
        f"insert into {table} (tenant_id, {more[0]}content, embedding, embedding_version_id, search_vector)"
        f" select $1, {more[1]}repeat('word ', n % 7) || 'number ' || n, array_fill(0.05, array[384])::vector, $2,"
        " to_tsvector('english', 'thing number ' || n)"
        " from generate_series(1, $3::int) n returning id::text",
        tenant,
        memory.embedder.version.id,
        number,
    )
    return [row["id"] for row in rows]


async def renewed_count(archive, tenant):
    """Return the number of renewed vectors in the events."""
    events = [each for each in await archive.events(tenant) if each["event_type"] == "embeddings_renewed"]
    counted = [json.loads(each["payload"]) for each in events]
    return sum(each.get(kind, 0) for each in counted for kind in MemoryType)


async def search_all(memory, caller, query, mode="semantic"):
    """Return the results of a search in all scopes."""
    kinds = list(MemoryType)
    return await reading.search(
        memory, caller, query, types=kinds, scope="*", mode=SearchMode(mode), limit=50, min_confidence=0
    )


async def search_ids(memory, caller, query, mode="semantic"):
    """Return the ids a search in all scopes finds."""
    return {str(each["id"]) for each in await search_all(memory, caller, query, mode)}


TEXTS = ("blue", "The quick brown fox jumps over the lazy dog", "Zürich, 東京 and a great many more words " * 5)


@pytest.mark.parametrize("how", ["mean", "cls", "pooled by itself"])
async def test_a_text_has_the_vector_its_tokens_make_however_many_texts_come_at_once(home, tmp_path, how):
    place = write_model(tmp_path, seed=5, pooled=how == "pooled by itself")
    engine = EmbeddingEngine(home, OnnxFolder(place, "cls" if how == "cls" else "mean"))
    together = await engine.embed_batch(TEXTS)
    tokenizer = engine._loaded().counter
    for text, vector in zip(TEXTS, together, strict=True):
        rows = word_vectors(5)[[each % WORDS for each in tokenizer.encode(text).ids]]
        assert math.dist(vector, normalize(rows[0] if how == "cls" else rows.mean(axis=0))) < 1e-4
        assert math.dist(vector, await engine.embed(text)) < 1e-4


async def test_a_model_reads_as_many_tokens_as_its_folder_says(home, tmp_path):
    short = EmbeddingEngine(home, OnnxFolder(write_model(tmp_path, longest=5)))
    assert math.dist(*await short.embed_batch(["one two three four", "one two three nine"])) < 1e-5
    whole = EmbeddingEngine(home, OnnxFolder(write_model(tmp_path, "whole")))
    assert math.dist(*await whole.embed_batch(["one two three four", "one two three nine"])) > 0.1


@pytest.mark.parametrize("config", ["half", "[]", '{"max_seq_length": "long"}', '{"x": ' + "[" * 100_000])
def test_a_model_whose_configuration_is_not_understood_reads_512_tokens(tmp_path, config):
    (tmp_path / "sentence_bert_config.json").write_text(config)
    assert OnnxFolder(tmp_path).max_tokens == 512


async def test_a_model_in_a_folder_below_is_found(home, tmp_path):
    place = write_model(tmp_path)
    (place / "onnx").mkdir()
    (place / "model.onnx").rename(place / "onnx" / "model.onnx")
    assert len(await EmbeddingEngine(home, OnnxFolder(place)).embed("blue")) == 384


def test_a_file_that_changed_is_another_version(tmp_path):
    seen = {OnnxFolder(write_model(tmp_path)).digest, OnnxFolder(tmp_path / "bag-of-words", "cls").digest}
    assert OnnxFolder(write_model(tmp_path)).digest in seen, "the same files are the same version"
    assert OnnxFolder(write_model(tmp_path, "elsewhere")).digest in seen
    seen.add(OnnxFolder(write_model(tmp_path, seed=2)).digest)
    tokenizer = tmp_path / "bag-of-words" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    seen.add(OnnxFolder(tmp_path / "bag-of-words").digest)
    assert len(seen) == 4


def test_how_many_tokens_are_read_is_part_of_the_version(tmp_path):
    """Another token limit gives other vectors for the same text."""
    digests = {OnnxFolder(write_model(tmp_path, longest=longest)).digest for longest in (None, 5, 6)}
    assert len(digests) == 3


def configured(at, model_folder, **butler):
    """Return the configuration of a butler with that model folder."""
    extra = f'[modules.memory.embedding]\nfolder = "{model_folder}"\n'
    return app.load_configuration(write_butler(at, butler.get("name", f"brings{uuid4().hex[:8]}"), extra))


async def start_error(at, model_folder, environment):
    """Return the error of a butler that does not start with that folder."""
    with pytest.raises(Unavailable, match="the module memory did not start") as raised:
        async with app.open_butler(configured(at, model_folder), environment):
            pass
    return str(raised.value)


async def test_a_model_of_other_dimensions_is_refused_at_the_start_with_the_numbers(environment, home, tmp_path):
    place = write_model(tmp_path, "wide", dimensions=768)
    message = "wide has vectors of 768 dimensions, but memories"
    assert message in await start_error(tmp_path, place, environment)
    with pytest.raises(ConfigurationFault, match=message) as raised:
        await EmbeddingEngine(home, OnnxFolder(place)).ready()
    assert raised.value.hint == "Choose a model with 384 dimensions."


async def test_a_missing_file_is_refused_at_the_start_with_its_place(environment, tmp_path):
    nowhere = tmp_path / "nowhere"
    assert f"there is no model.onnx in {nowhere}" in await start_error(tmp_path, nowhere, environment)
    place = write_model(tmp_path)
    (place / "tokenizer.json").unlink()
    assert f"there is no tokenizer.json in {place}" in await start_error(tmp_path, place, environment)


@pytest.mark.parametrize("file", ["model.onnx", "tokenizer.json"])
async def test_a_damaged_file_is_refused_at_the_start_with_its_place(environment, tmp_path, file):
    place = write_model(tmp_path)
    (place / file).write_bytes((place / file).read_bytes()[:5_000])
    assert str(place) in await start_error(tmp_path, place, environment)


async def test_a_model_that_can_not_read_as_much_as_it_is_given_is_refused_at_the_start(home, tmp_path):
    """Otherwise the first long memory would block the re-embedding of all after it."""
    short = EmbeddingEngine(home, OnnxFolder(write_model(tmp_path, places=32, longest=32)))
    assert len(await short.embed("word " * 1_000)) == 384
    too_short = OnnxFolder(write_model(tmp_path, "too-short", places=32))
    with pytest.raises(ConfigurationFault, match="too-short"):
        await EmbeddingEngine(home, too_short).ready()


async def test_old_vectors_are_not_compared_with_new_ones_and_words_find_both(memory, renewed, caller):
    ids = {}
    for name, at in (("old", memory), ("new", renewed)):
        fact = NewFact(subject=name, predicate="likes", content="herbal tea in the garden")
        ids[name] = {
            (await writing.store_fact(at, caller, fact, REQUEST))["id"],
            (await writing.store_rule(at, caller, NewRule(content=f"Offer herbal tea, {name} guest"), REQUEST))["id"],
            *await store_episodes(at, caller, f"The {name} guest asked for herbal tea"),
        }
    assert await search_ids(memory, caller, "herbal tea") == ids["old"]
    assert await search_ids(renewed, caller, "herbal tea") == ids["new"]
    for at in (memory, renewed):
        for mode in ("keyword", "hybrid", "blended"):
            assert await search_ids(at, caller, "herbal tea", mode) == ids["old"] | ids["new"]
        blended = await search_all(at, caller, "herbal tea", "blended")
        assert {str(each["id"]) for each in blended if each["similarity"] is None} == (
            ids["old"] if at is renewed else ids["new"]
        )
    assert await reembedding.count_stale(renewed, caller) == await reembedding.count_stale(memory, caller) == 3


async def test_row_52_a_memory_without_a_vector_is_stale_whatever_version_it_names(memory, caller, archive):
    fact = NewFact(subject="Ada", predicate="likes", content="herbal tea in the garden")
    fact_id = (await writing.store_fact(memory, caller, fact, REQUEST))["id"]
    await archive.change("fact", fact_id, embedding="null")
    assert await search_ids(memory, caller, "herbal tea") == set()
    assert await reembedding.count_stale(memory, caller) == 1
    assert (await reembedding.reembed(memory, caller))["facts"] == 1
    assert await search_ids(memory, caller, "herbal tea") == {fact_id}
    assert await reembedding.count_stale(memory, caller) == 0


async def insert_every_state(memory, caller, archive):
    """Insert memories in every lifecycle state."""
    facts = [
        (
            await writing.store_fact(
                memory, caller, NewFact(subject="Ada", predicate=f"p{number}", content=f"fact {number}"), REQUEST
            )
        )["id"]
        for number in range(5)
    ]
    await writing.store_fact(memory, caller, NewFact(subject="Ada", predicate="p0", content="the latest"), REQUEST)
    await archive.change("fact", facts[1], validity="'fading'")
    await archive.change("fact", facts[2], validity="'expired'")
    await archive.change("fact", facts[3], validity="'retracted'")
    await archive.change("fact", facts[4], embedding="null", embedding_version_id="null")
    rules = [
        (await writing.store_rule(memory, caller, NewRule(content=f"Rule number {number}"), REQUEST))["id"]
        for number in range(3)
    ]
    await archive.change("rule", rules[0], metadata="""'{"forgotten": true}'""")
    await archive.change("rule", rules[1], maturity="'anti_pattern'")
    episodes = await store_episodes(memory, caller, "Talk one", "Talk two", "Talk three")
    await archive.change("episode", episodes[0], expires_at="now() - interval '1 day'")
    await archive.change("episode", episodes[1], consolidation_status="'consolidated'")
    return facts, rules, episodes


async def rows_without_vectors(archive, tenant):
    """Return a tenant's memories without their vectors."""
    kept = "to_jsonb(m) - 'embedding' - 'embedding_version_id'"
    search_ids = [
        await archive.rows(f"select ({kept})::text from {t} m where tenant_id = $1 order by id", tenant)
        for t in TABLES
    ]
    return [tuple(row.values()) for rows in search_ids for row in rows]


async def test_every_memory_of_every_state_is_embedded_anew_as_if_it_were_new(
    memory, renewed, caller, archive, other_engine, engine
):
    """Scenario: Re-embed migration support"""
    facts, rules, episodes = await insert_every_state(memory, caller, archive)
    before = await rows_without_vectors(archive, caller.tenant)
    assert await reembedding.count_stale(renewed, caller) == 12
    steps = []
    done = await reembedding.reembed(renewed, caller, progress=lambda *step: steps.append(step))
    assert done == {
        "facts": 6,
        "rules": 3,
        "episodes": 3,
        "model": "bag-of-words",
        "version": other_engine.version.version,
    }
    assert await rows_without_vectors(archive, caller.tenant) == before, "nothing but the vectors changed"
    assert await assert_embedded_by(other_engine, archive, caller.tenant) == 12
    assert (steps[0], steps[-1]) == ((0, 12), (12, 12))
    assert steps == sorted(steps)
    assert await search_ids(renewed, caller, "Talk") & {*episodes[1:]} == {*episodes[1:]}
    await management.restore(renewed, caller, MemoryType.FACT, UUID(facts[3]), REQUEST)
    await management.restore(renewed, caller, MemoryType.RULE, UUID(rules[0]), REQUEST)
    assert {facts[3], rules[0]} <= await search_ids(renewed, caller, "number fact")
    versions = await archive.rows("select model, version from embedding_versions where tenant_id = $1", caller.tenant)
    assert {(row["model"], row["version"]) for row in versions} == {
        ("all-MiniLM-L6-v2", "1"),
        ("bag-of-words", other_engine.version.version),
    }
    assert await reembedding.count_stale(renewed, caller) == 0
    assert (await reembedding.reembed(renewed, caller))["facts"] == 0
    assert await renewed_count(archive, caller.tenant) == 12
    assert (await reembedding.reembed(memory, caller))["episodes"] == 3, "and back to the model that comes with it"
    assert await assert_embedded_by(engine, archive, caller.tenant) == 12


async def test_the_event_of_a_renewal_names_version_and_number_and_no_content(
    memory, renewed, caller, archive, other_engine
):
    await insert_every_state(memory, caller, archive)
    await reembedding.reembed(renewed, caller)
    events = [each for each in await archive.events(caller.tenant) if each["event_type"] == "embeddings_renewed"]
    assert {(each["entity_type"], each["entity_id"]) for each in events} == {
        ("embedding_version", str(other_engine.version.id))
    }
    assert {(each["actor"], each["request_id"]) for each in events} == {("somebody", caller.request_id)}
    payloads = [json.loads(each["payload"]) for each in events]
    assert sorted(payloads, key=str) == sorted(
        ({"butler": memory.butler, kind: number} for kind, number in (("fact", 6), ("rule", 3), ("episode", 3))),
        key=str,
    )


async def test_a_dry_run_counts_and_changes_nothing(memory, renewed, caller, archive):
    await insert_every_state(memory, caller, archive)
    before = await archive.everything(caller.tenant)
    assert await reembedding.count_stale(renewed, caller) == 12
    assert await reembedding.count_stale(memory, caller) == 1, "the one that has no vector at all"
    assert await archive.everything(caller.tenant) == before


async def interrupt_reembedding(memory, caller):
    """Start re-embedding and cancel it some time after the first batch was written."""
    seen = asyncio.Event()

    def on_progress(done, _):
        if done:
            seen.set()

    running = asyncio.create_task(reembedding.reembed(memory, caller, progress=on_progress))
    await seen.wait()
    await asyncio.sleep(random.uniform(0, 0.05))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_ended_half_way_it_goes_on_where_it_was_and_does_nothing_twice(
    memory, renewed, caller, archive, other_engine
):
    await insert_memories(archive, memory, caller.tenant, 1_500)
    left = 1_500
    for _ in range(3):
        if left:
            await interrupt_reembedding(renewed, caller)
        waits = await reembedding.count_stale(renewed, caller)
        assert waits < left or not left
        assert await renewed_count(archive, caller.tenant) == 1_500 - waits, "what is done is on the trail, once"
        left = waits
    assert (await reembedding.reembed(renewed, caller))["facts"] == left
    assert await renewed_count(archive, caller.tenant) == 1_500
    assert await assert_embedded_by(other_engine, archive, caller.tenant) == 1_500


async def test_two_at_once_renew_each_memory_once(memory, renewed, caller, archive, other_engine):
    for table in TABLES:
        await insert_memories(archive, memory, caller.tenant, 300, table)
    both = await asyncio.gather(*(reembedding.reembed(renewed, caller) for _ in range(2)))
    for table in TABLES:
        assert sum(each[table] for each in both) == 300
    assert await renewed_count(archive, caller.tenant) == 900
    assert await assert_embedded_by(other_engine, archive, caller.tenant) == 900


class PausedEmbedder:
    """An embedder that waits until `may_finish` is set."""

    def __init__(self, engine):
        self._engine, self.version, self.embed = engine, engine.version, engine.embed
        self.count_tokens = engine.count_tokens
        self.started, self.may_finish = asyncio.Event(), asyncio.Event()

    async def embed_batch(self, texts, **options):
        self.started.set()
        await self.may_finish.wait()
        return await self._engine.embed_batch(texts, **options)


async def test_what_happens_to_a_memory_while_it_is_embedded_is_not_undone(
    memory, renewed, caller, archive, tools, other_engine, engine
):
    forgotten, replaced = await tools.fact("to be forgotten", predicate="a"), await tools.fact("old", predicate="b")
    rule = await tools.rule("Order seafood for everybody")
    for reason in ("one fell ill", "another fell ill", "nobody paid"):
        await tools("memory_mark_harmful", rule_id=rule, reason=reason)
    slow = PausedEmbedder(other_engine)
    running = asyncio.create_task(reembedding.reembed(replace(renewed, embedder=slow), caller))
    await slow.started.wait()
    await tools("memory_forget", memory_type="fact", memory_id=forgotten)
    latest = await tools.fact("new", predicate="b")
    late = (await writing.store_fact(renewed, caller, NewFact(subject="x", predicate="y", content="z"), REQUEST))[
        "id"
    ]
    await decay_sweep.sweep(memory, caller)
    slow.may_finish.set()
    await running
    rows = await archive.rows("select id::text, validity from facts where tenant_id = $1", caller.tenant)
    assert {row["id"]: row["validity"] for row in rows} == {
        forgotten: "retracted",
        replaced: "superseded",
        latest: "active",
        late: "active",
    }
    row = await archive.row("rule", rule)
    assert (row["maturity"], row["content"].startswith("ANTI-PATTERN: Do NOT Order")) == ("anti_pattern", True)
    await reembedding.reembed(renewed, caller)
    await assert_embedded_by(other_engine, archive, caller.tenant)


async def test_a_rule_that_says_something_else_by_now_keeps_the_vector_of_what_it_says(
    memory, renewed, caller, archive, tools, other_engine, engine
):
    rule = await tools.rule("Order seafood for everybody")
    slow = PausedEmbedder(other_engine)
    running = asyncio.create_task(reembedding.reembed(replace(renewed, embedder=slow), caller))
    await slow.started.wait()
    warning = (await engine.embed_batch(["Never do that"]))[0]
    vector = f"'{json.dumps(warning)}'::vector"
    await archive.change("rule", rule, content="'Never do that'", embedding=vector)
    slow.may_finish.set()
    assert (await running)["rules"] == 0
    assert await assert_embedded_by(engine, archive, caller.tenant) == 1
    assert await reembedding.count_stale(renewed, caller) == 1, "it waits for the next time"


async def test_recalling_and_storing_go_on_while_everything_is_embedded_anew(
    tmp_path, environment, engine, other_engine
):
    """Recall updates the rows that are being re-embedded: no deadlock may occur."""
    async with separate_butler(tmp_path, environment, engine) as own:
        # As right after an import: without statistics the server reads the table in any order.
        await own.archive.connection.execute("alter table facts set (autovacuum_enabled = false)")
        memory, caller = replace(own.memory, embedder=other_engine), own.new_caller()
        await insert_memories(own.archive, own.memory, caller.tenant, 200)
        # Open the connections first: on a busy machine that may take longer than a call waits.
        together = asyncio.Barrier(6)

        async def connected():
            async with memory.transaction(caller):
                await together.wait()

        await asyncio.gather(*(retry_when_busy(connected) for _ in range(together.parties)))

        async def recall_repeatedly():
            await asyncio.sleep(random.uniform(0, 0.08))
            return await reading.recall(memory, caller, "thing number", scope="*", limit=100, types=[MemoryType.FACT])

        for number in range(20):
            fact = NewFact(subject=f"new {number}", predicate="is", content="stored meanwhile")
            one, two, stored, done = await asyncio.gather(
                recall_repeatedly(),
                recall_repeatedly(),
                writing.store_fact(memory, caller, fact, REQUEST),
                reembedding.reembed(memory, caller),
            )
            assert (len(one), len(two), bool(stored["id"]), done["facts"]) == (100, 100, True, 200)
            await own.archive.connection.execute(
                "update facts set embedding_version_id = null where tenant_id = $1 and content like '%number%'",
                caller.tenant,
            )


async def test_a_butler_with_another_model_embeds_everything_of_everybody_in_its_job(
    tmp_path, environment, engine, model_folder, other_engine
):
    async with separate_butler(tmp_path, environment, engine) as own:
        ada, bob = own.new_caller(), own.new_caller()
        for who in (ada, bob):
            await insert_every_state(own.memory, who, own.archive)
        (tmp_path / "again").mkdir()
        again = configured(tmp_path / "again", model_folder, name=own.memory.butler)
        async with app.open_butler(again, environment) as butler:
            module = butler.modules[0]
            assert module.state.embedder.version == other_engine.version
            (check, *_) = await module.checks()
            assert check.state == "ok"
            assert check.found == f"bag-of-words {other_engine.version.version}, 384 dimensions"
            assert await reembedding.count_stale(module.state, ada) == 12
            assert await reembedding.count_stale(module.state, ada, all_tenants=True) == 24
            (job,) = [job for job in module.jobs() if job.name == "reembed"]
            done = await job.run(butler.caller("nobody", actor="the clock"))
            assert (done["facts"], done["rules"], done["episodes"]) == (12, 6, 6)
        for who in (ada, bob):
            assert await assert_embedded_by(other_engine, own.archive, who.tenant) == 12
            assert await renewed_count(own.archive, who.tenant) == 12
            actors = await own.archive.rows(
                "select distinct actor from memory_events where tenant_id = $1 and event_type = 'embeddings_renewed'",
                who.tenant,
            )
            assert [row["actor"] for row in actors] == ["reembed"]
        assert await own.archive.count("memory_events", "nobody") == 0
        assert await own.archive.count("embedding_versions", "nobody") == 0


async def test_one_tenants_memories_are_embedded_and_no_others(memory, renewed, caller, archive):
    another = Caller(tenant=f"t-{uuid4().hex}", butler=memory.butler)
    for who in (caller, another):
        await insert_every_state(memory, who, archive)
    before = await archive.everything(another.tenant)
    assert (await reembedding.reembed(renewed, caller))["facts"] == 6
    assert await archive.everything(another.tenant) == before
    assert await archive.count("embedding_versions", another.tenant) == 1
