"""Arguments and answers of the tools: understood or refused arguments, no vectors in answers."""

import asyncio
import json
import re
import urllib.request
import uuid
from datetime import datetime
from typing import Any

import pytest
from fastmcp import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from butlers import app
from butlers.modules.memory.operations.idempotency import Request
from butlers.modules.memory.tools import TOOLS
from memory.memory_fixtures import Tools, build_tenant_server, serve_http, valid_arguments, write_butler

CODES = ("invalid_input", "not_found", "conflict", "already_exists", "forbidden")
MEMORY_TOOLS = [tool.name for tool in TOOLS]


def walk(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Yield every value inside an answer with its path."""
    if isinstance(value, dict):
        return [(path, value), *(each for name, inner in value.items() for each in walk(inner, f"{path}.{name}"))]
    if isinstance(value, list):
        return [(path, value), *(each for inner in value for each in walk(inner, f"{path}[]"))]
    return [(path, value)]


def assert_valid_answer(name: str, answer: Any) -> None:
    """Assert that ids are strings, times have an offset and no vector is included."""
    for path, value in walk(answer):
        last = path.rsplit(".", 1)[-1]
        assert "embedding" not in last, (name, path)
        assert last != "search_vector", (name, path)
        if value is None:
            continue
        if isinstance(value, list):
            assert len(value) < 300, (name, path)
            assert not any(isinstance(each, float) for each in value), (name, path)
        if (last == "id" or last.endswith("_id")) and last not in {"request_id", "tenant_id"}:
            assert str(uuid.UUID(value)) == value, (name, path)
        if last.endswith("_at"):
            moment = datetime.fromisoformat(value)
            assert moment.isoformat() == value, (name, path)
            assert moment.utcoffset() is not None, (name, path)


async def call_every_tool(tools: Tools, butler: str) -> None:
    await tools.fact("an older secret about tea")
    for name, arguments in (await valid_arguments(tools, butler)).items():
        answer = await tools(name, **arguments)
        assert answer, name
        assert_valid_answer(name, answer)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_no_answer_of_any_tool_holds_a_vector_in_either_era(butler, memory, caller, era):
    """Scenario: UUID serialization
    Scenario: Datetime serialization
    """
    async with Client(build_tenant_server(butler, memory, caller.tenant).mcp, mode=era) as client:
        await call_every_tool(Tools(client, caller.tenant), memory.butler)


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_nor_does_any_over_http(butler, memory, caller, era):
    server = build_tenant_server(butler, memory, caller.tenant, mode="local")
    async with serve_http(server) as address, Client(address, mode=era) as client:
        await call_every_tool(Tools(client, caller.tenant), memory.butler)


def test_a_vector_an_odd_id_and_a_time_without_offset_are_found():
    for bad in (
        {"rows": [{"embedding": "x"}]},
        {"a": {"search_vector": "x"}},
        {"a": [0.1] * 384},
        {"id": "ABC"},
        {"created_at": "2026-07-28 12:00"},
    ):
        with pytest.raises((AssertionError, ValueError)):
            assert_valid_answer("a tool", bad)


INTERNAL_COLUMNS = {"embedding", "embedding_version_id", "search_vector", "lease_token", "leased_until", "names"}


async def test_a_record_has_every_column_of_its_row_and_null_where_there_is_nothing(tools, archive, memory):
    stored = await tools("memory_store_episode", content="Had tea", butler=memory.butler)
    ids = {"fact": await tools.fact(), "rule": await tools.rule(), "episode": stored["id"]}
    records = {kind: await tools("memory_get", memory_type=kind, memory_id=each) for kind, each in ids.items()}
    records["entity"] = await tools("entity_get", entity_id=await tools.entity())
    for kind, record in records.items():
        row = await archive.row(kind, record["id"])
        assert set(row) - INTERNAL_COLUMNS <= set(record), kind
        unset = {name for name, value in row.items() if value is None} - INTERNAL_COLUMNS
        assert {name: record[name] for name in unset} == dict.fromkeys(unset), kind
    assert records["episode"]["session_id"] is records["fact"]["supersedes_id"] is None
    assert records["rule"]["last_applied_at"] is records["rule"]["provenance"] is None
    assert records["entity"]["merged_into"] is None
    [item] = await tools("memory_search", query="blue", types=["fact"])
    assert None not in item.values(), "an item of a list leaves empty fields out"


async def test_the_schema_shows_the_defaults_that_the_configuration_sets(tmp_path, environment, worker):
    extra = "[modules.memory.retrieval]\ndefault_limit = 7\nmin_confidence = 0.3\ncontext_token_budget = 500"
    folder = write_butler(tmp_path, f"memory_{worker}")
    page = folder / "butler.toml"
    page.write_text(f'{page.read_text()}max_episodes = 4321\n{extra}\ndefault_mode = "blended"\n')
    async with (
        app.open_butler(app.load_configuration(folder), environment) as opened,
        app.open_server(opened) as server,
        Client(server.mcp) as client,
    ):
        shown = {tool.name: tool.input_schema["properties"] for tool in await client.list_tools()}
        answer = await client.call_tool("memory_run_episode_cleanup", {"dry_run": True})
    assert shown["memory_run_episode_cleanup"]["max_entries"]["default"] == 4321
    assert answer.structured_content["dry_run"]
    search = {name: shown["memory_search"][name]["default"] for name in ("limit", "min_confidence", "mode")}
    assert search == {"limit": 7, "min_confidence": 0.3, "mode": "blended"}
    assert shown["memory_context"]["token_budget"]["default"] == 500


REGISTERED = {
    "memory_store_episode": ({"content", "butler"}, {"session_id", "importance"}),
    "memory_store_fact": (
        {"subject", "predicate", "content"},
        {"importance", "permanence", "scope", "tags", "entity_id", "supersedes_id"},
    ),
    "memory_store_rule": ({"content"}, {"scope", "tags", "permanence"}),
    "memory_search": ({"query"}, {"types", "scope", "mode", "limit", "min_confidence"}),
    "memory_recall": ({"topic"}, {"scope", "limit"}),
    "memory_get": ({"memory_type", "memory_id"}, set()),
    "memory_confirm": ({"memory_type", "memory_id"}, set()),
    "memory_mark_helpful": ({"rule_id"}, set()),
    "memory_mark_harmful": ({"rule_id"}, {"reason"}),
    "memory_forget": ({"memory_type", "memory_id"}, set()),
    "memory_stats": (set(), {"scope"}),
    "memory_context": ({"trigger_prompt", "butler"}, {"token_budget"}),
    "entity_create": ({"canonical_name", "entity_type"}, {"aliases", "metadata", "tenant_id"}),
    "entity_get": ({"entity_id"}, {"tenant_id"}),
    "entity_update": ({"entity_id"}, {"canonical_name", "aliases", "metadata", "tenant_id"}),
    "entity_resolve": ({"name"}, {"entity_type", "context_hints", "enable_fuzzy", "tenant_id"}),
    "entity_merge": ({"source_entity_id", "target_entity_id"}, {"tenant_id"}),
}
READING = {"memory_search", "memory_recall", "memory_get", "memory_stats", "memory_context"}
READING |= {"entity_get", "entity_resolve"}


async def test_every_tool_takes_the_arguments_it_is_specified_with(tools):
    """Scenario: Writing tools registered
    Scenario: Reading tools registered
    Scenario: Feedback tools registered
    Scenario: Management tools registered
    Scenario: Context tool registered
    Scenario: Entity tools registered
    """
    offered = {tool.name: tool for tool in await tools.client.list_tools()}
    for name, (required, optional) in REGISTERED.items():
        schema = offered[name].input_schema
        assert set(schema.get("required", [])) == required, name
        keyed = set() if name in READING else {"idempotency_key"}
        assert set(schema["properties"]) == required | optional | keyed, name
    defaults = {name: value.get("default") for name, value in _properties(offered, "memory_store_fact").items()}
    assert (defaults["importance"], defaults["permanence"], defaults["scope"]) == (5.0, "standard", "global")
    assert _properties(offered, "memory_recall")["limit"]["default"] == 10


def _properties(offered: Any, name: str) -> Any:
    return offered[name].input_schema["properties"]


@pytest.mark.parametrize("listed", ["food, drink", " food ,drink,", '["food", "drink"]', ["food", "drink"]])
async def test_words_separated_by_commas_are_a_list_everywhere(tools, archive, listed):
    fact, rule = await tools.fact(tags=listed), await tools.rule(tags=listed)
    for kind, each in (("fact", fact), ("rule", rule)):
        assert (await tools("memory_get", type=kind, id=each))["tags"] == ["food", "drink"]
    entity = await tools.entity("Tea house", aliases=listed)
    assert (await tools("entity_get", id=entity))["aliases"] == ["food", "drink"]
    assert (await tools("entity_update", id=entity, aliases=listed))["aliases"] == ["food", "drink"]
    hints = {"mentioned_with": listed}
    assert [each["entity_id"] for each in await tools("entity_resolve", name="food", context_hints=hints)] == [entity]
    found = await tools("memory_search", query="blue", types="fact, rule")
    assert {each["memory_type"] for each in found} == {"fact", "rule"}


async def test_an_item_of_a_list_keeps_its_comma_and_commas_alone_are_nothing(tools):
    entity = await tools.entity("John Smith", aliases=["Smith, John"])
    assert (await tools("entity_get", id=entity))["aliases"] == ["Smith, John"]
    changed = await tools("entity_update", id=entity, aliases=" , ", canonical_name="J. Smith")
    assert changed["aliases"] == ["Smith, John"], "nothing named, nothing removed"


def enumerations(schema: Any, where: tuple[str, ...] = ()) -> list[tuple[str, list[str]]]:
    """Return each argument that has an enumeration, with its words."""
    if isinstance(schema, dict):
        found = [(where[0], schema["enum"])] if "enum" in schema else []
        properties = schema.get("properties", {})
        inner = [(name, each) for name, each in schema.items() if name != "properties"]
        inner += list(properties.items())
        return found + [hit for name, each in inner for hit in enumerations(each, (*where, name)[:1])]
    return [hit for each in schema for hit in enumerations(each, where)] if isinstance(schema, list) else []


async def test_every_enumeration_of_every_tool_is_understood_in_any_case(tools, memory):
    needed = await valid_arguments(tools, memory.butler)
    checked = set()
    for tool in await tools.client.list_tools():
        # The enumerations inside the items of a batch are tried where batches are.
        properties = {name: each for name, each in tool.input_schema["properties"].items() if name != "items"}
        for argument, words in enumerations({"properties": properties}):
            for word in words:
                arguments = {**needed[tool.name], argument: f" {word.title()} "}
                answer = await tools.client.call_tool(tool.name, arguments, raise_on_error=False)
                text = str(answer.content[0].text) if answer.is_error else ""
                assert not text.startswith(("invalid_input: " + argument, "internal")), (tool.name, text)
                checked.add((tool.name, argument))
    expected = {"memory_type", "types", "mode", "permanence", "direction", "entity_type"}
    assert {argument for _, argument in checked} == expected
    assert len(checked) == 14
    assert await tools("memory_search", query="tea", types=["RULE", "Fact"])


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_words_in_any_case_and_lists_with_commas_are_understood_over_http(butler, memory, caller, era):
    server = build_tenant_server(butler, memory, caller.tenant, mode="local")
    async with serve_http(server) as address, Client(address, mode=era) as client:
        over_http = Tools(client, caller.tenant)
        fact = await over_http.fact(permanence="Stable", tags="food, drink")
        record = await over_http("memory_get", memory_type="FACT", memory_id=fact)
    assert (record["permanence"], record["tags"]) == ("stable", ["food", "drink"])


async def test_lists_as_text_and_blank_optionals_are_understood(tools, archive):
    answer = await tools(
        "memory_store_fact",
        subject="user",
        predicate="color",
        content="blue",
        tags='["a", "b"]',
        importance="",
        permanence=" ",
        scope="",
        entity_id="",
        idempotency_key="",
    )
    row = await archive.row("fact", answer["id"])
    assert (json.loads(row["tags"]), row["importance"]) == (["a", "b"], 5.0)
    assert (row["permanence"], row["scope"], row["entity_id"]) == ("standard", "global", None)
    blanks = {"types": "", "scope": "", "mode": "", "limit": "", "min_confidence": ""}
    assert await tools.ids("memory_search", query="blue", **blanks) == [answer["id"]]
    for types in ('["fact"]', "fact", ["fact"], '["fact", "rule"]', None):
        assert await tools.ids("memory_search", query="blue", types=types) == [answer["id"]]
    rule = await archive.row("rule", await tools.rule(tags="urgent", permanence="", scope=""))
    assert (json.loads(rule["tags"]), rule["decay_rate"], rule["scope"]) == (["urgent"], 0.01, "global")


@pytest.mark.parametrize(
    ("tool", "arguments", "about"),
    [
        ("memory_store_fact", {"importance": 1e6}, "importance"),
        ("memory_store_fact", {"importance": -1}, "importance"),
        ("memory_store_fact", {"tags": '["a"'}, "tags"),
        ("memory_store_fact", {"tags": [1]}, "tags"),
        ("memory_store_fact", {"scope": "*"}, "'*'"),
        ("memory_store_fact", {"color": "blue"}, "color: there is no such argument"),
        ("memory_store_fact", {"subject": "x" * 10_000}, "subject has 10000 characters"),
        ("memory_store_episode", {"session_id": "telegram:5"}, "session_id is not an id"),
        ("memory_store_episode", {"importance": 11}, "importance"),
        ("memory_search", {"types": ["person"]}, "types"),
        ("memory_search", {"mode": "fuzzy"}, "mode"),
        ("memory_search", {"limit": 0}, "limit"),
        ("memory_search", {"limit": 101}, "limit"),
        ("memory_search", {"min_confidence": 1.1}, "min_confidence"),
        ("memory_get", {"memory_type": "entity"}, "memory_type"),
        ("memory_get", {"memory_id": "message 5"}, "memory_id is not an id"),
        ("memory_mark_helpful", {"rule_id": "5"}, "rule_id is not an id"),
        ("memory_context", {"token_budget": 1}, "token_budget"),
    ],
)
async def test_what_is_not_understood_is_refused_with_what_to_send(tools, memory, archive, tool, arguments, about):
    needed = {
        "memory_store_fact": {"subject": "s", "predicate": "p", "content": "c"},
        "memory_store_episode": {"content": "c", "butler": memory.butler},
        "memory_search": {"query": "q"},
        "memory_get": {"memory_type": "fact", "memory_id": str(uuid.uuid4())},
        "memory_mark_helpful": {},
        "memory_context": {"trigger_prompt": "p", "butler": memory.butler},
    }[tool]
    message = await tools.refusal(tool, **{**needed, **arguments})
    assert message.startswith("invalid_input: ")
    assert about in message
    assert await archive.count("facts", tools.tenant) == await archive.count("episodes", tools.tenant) == 0


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_row_26_numbers_that_are_none_are_refused_over_http(butler, memory, caller, archive, number):
    arguments = f'{{"subject": "s", "predicate": "p", "content": "c", "importance": {number}}}'
    async with serve_http(build_tenant_server(butler, memory, caller.tenant, mode="local")) as address:
        answer = await asyncio.to_thread(_post, address, "memory_store_fact", arguments)
    assert "internal:" not in answer
    assert re.search("invalid_input|Parse error|error", answer), answer
    assert await archive.count("facts", caller.tenant) == 0


async def test_row_25_half_a_character_is_taken_or_refused_over_http(butler, memory, caller):
    """A lone surrogate, which JSON can express and UTF-8 can't."""
    async with serve_http(build_tenant_server(butler, memory, caller.tenant, mode="local")) as address:
        for name, arguments in (
            ("memory_store_rule", r'{"content": "half \ud83d a face"}'),
            ("memory_search", r'{"query": "half \ud83d a face", "scope": "\udc00"}'),
            ("memory_search", r'{"query": "a whole \ud83d\ude00 face and \u0000 nothing"}'),
        ):
            answer = await asyncio.to_thread(_post, address, name, arguments)
            assert "internal:" not in answer


def _post(address: str, tool: str, arguments: str) -> str:
    """Send a tool call as raw bytes."""
    params = f'{{"name": "{tool}", "arguments": {arguments}}}'
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(address, body, headers)  # noqa: S310 — a local butler
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 — a local butler
            return answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return f"error {refused.code}: {refused.read().decode()}"


# Unusual texts that fit into JSON.
ODD = st.sampled_from(
    [
        "\x00",
        "a\x00b",
        "\\u0000",
        "👩‍👩‍👧‍👦" * 20,
        "مرحبا بالعالم \u202e",
        "\ufeff\ufffe\uffff",
        "e\u0301" * 300,
        "x" * 10_000,
        "𠀀" * 600,
        "' ; drop table facts; --",
        "%_\\",
        "{}[]",
        "\x1b[31m",
        "\u180e\u200b",
        "-" * 50,
    ]
)
TEXTS = ODD | st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
SCALARS = st.one_of(TEXTS, st.none(), st.integers(-(10**20), 10**20), st.booleans(), st.lists(TEXTS, max_size=2))


@st.composite
def calls(draw) -> tuple[str, dict[str, Any]]:
    """Draw a tool with odd texts for some arguments and valid values for the others."""
    name = draw(st.sampled_from(MEMORY_TOOLS))
    names = set(ARGUMENTS[name])
    odd = draw(st.sets(st.sampled_from(sorted(names)), min_size=1))
    arguments = {each: draw(PROPER[each]) for each in names - odd if each in PROPER}
    return name, arguments | {each: draw(SCALARS if draw(st.booleans()) else TEXTS) for each in odd}


PROPER = {
    "content": st.just("tea"),
    "subject": st.just("user"),
    "predicate": st.just("drink"),
    "query": st.just("tea"),
    "topic": st.just("tea"),
    "trigger_prompt": st.just("tea"),
    "memory_type": st.sampled_from(["fact", "rule", "episode"]),
    "memory_id": st.just(str(uuid.UUID(int=1))),
    "rule_id": st.just(str(uuid.UUID(int=1))),
    "butler": st.just("memory_main"),
    "canonical_name": st.just("Ada"),
    "entity_type": st.sampled_from(["person", "place"]),
    "name": st.just("Ada"),
    "entity_id": st.just(str(uuid.UUID(int=1))),
    "source_entity_id": st.just(str(uuid.UUID(int=1))),
    "target_entity_id": st.just(str(uuid.UUID(int=2))),
}
ARGUMENTS = {
    tool.name: tool.function.__code__.co_varnames[2 : tool.function.__code__.co_argcount]
    for tool in TOOLS
    if tool.name in MEMORY_TOOLS
}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(calls())
async def test_row_25_any_text_in_any_argument_is_taken_or_refused_and_never_an_internal_error(tools, memory, call):
    name, arguments = call
    if arguments.get("butler") == "memory_main":
        arguments["butler"] = memory.butler
    answer = await tools.client.call_tool(name, arguments, raise_on_error=False)
    if answer.is_error:
        assert answer.content[0].text.split(":")[0] in CODES, (answer.content[0].text, arguments)


MEGABYTE = " ".join(f"w{number:06d}" for number in range(120_000))
HYPHENATED = " ".join(f"{chr(0x20000 + n % 40_000)}-{chr(0x20000 + n // 7)}" for n in range(80_000))


@pytest.mark.parametrize("text", [MEGABYTE, HYPHENATED], ids=["words", "hyphens"])
async def test_row_25_a_megabyte_of_distinct_words_is_kept_and_asked(tools, text):
    rule = await tools.rule(text)
    assert (await tools("memory_get", type="rule", id=rule))["content"] == text
    assert await tools.ids("memory_search", query=text[:50], mode="keyword") == [rule]
    for mode in ("keyword", "hybrid", "blended"):
        assert await tools.ids("memory_search", query=text, mode=mode) == [rule]
    assert await tools.ids("memory_recall", topic=text) == [rule]


async def test_row_25_a_prompt_of_a_megabyte_gets_its_context(tools, memory):
    await tools.rule("Mind w000001")
    text = await tools("memory_context", trigger_prompt=MEGABYTE, butler=memory.butler)
    assert "- Mind w000001 (" in text


async def test_row_25_more_than_a_megabyte_is_refused(tools):
    for name, arguments in (
        ("memory_store_rule", {"content": MEGABYTE * 2}),
        ("memory_store_fact", {"subject": "s", "predicate": "p", "content": MEGABYTE * 2}),
    ):
        message = await tools.refusal(name, **arguments)
        assert message.startswith("invalid_input: content is longer than a megabyte.")


async def test_row_25_keys_of_any_script_are_stored_or_refused(tools):
    letters = "".join(chr(0x20000 + 37 * n) for n in range(600))
    for size in (255, 256):
        await tools.fact("x", subject=letters[:size], predicate=letters[256 : 256 + size], scope=letters[512:576])
    for size in (257, 512):
        message = await tools.refusal("memory_store_fact", subject=letters[:size], predicate="p", content="c")
        assert message.startswith(f"invalid_input: subject has {size} characters in {4 * size} bytes.")


async def test_row_15_thirty_requests_with_one_key_make_one_row(tools, archive, memory):
    arguments = {
        "memory_store_fact": {"subject": "user", "predicate": "color", "content": "blue"},
        "memory_store_rule": {"content": "Ask first"},
        "memory_store_episode": {"content": "Asked", "butler": memory.butler},
        "memory_mark_helpful": {"rule_id": await tools.rule("Another")},
    }
    for name, asked in arguments.items():
        answers = await asyncio.gather(*(tools(name, **asked, idempotency_key=f"k {name}") for _ in range(30)))
        assert all(answer == answers[0] for answer in answers), name
    assert await archive.count("facts", tools.tenant) == 1
    assert await archive.count("rules", tools.tenant) == 2
    assert await archive.count("episodes", tools.tenant) == 1
    assert answers[0]["applied_count"] == 1
    assert await archive.count("rule_applications", tools.tenant) == 1
    assert await archive.count("memory_events", tools.tenant) == 5


async def test_row_15_a_key_with_other_arguments_or_another_tool_is_a_conflict(tools, stranger, archive):
    first = await tools.fact("blue", idempotency_key="k")
    for name, arguments in (
        ("memory_store_fact", {"subject": "user", "predicate": "color", "content": "green"}),
        ("memory_store_rule", {"content": "blue"}),
        ("memory_forget", {"type": "fact", "id": first}),
    ):
        message = await tools.refusal(name, **arguments, idempotency_key=" k ")
        assert message.startswith("conflict: the idempotency_key k was used with other arguments.")
    assert await archive.count("facts", tools.tenant, "validity = 'active'") == 1
    assert await stranger.fact("green", idempotency_key="k"), "another tenant's key is another key"


async def test_row_15_the_same_said_with_blanks_is_the_same_request(tools):
    first = await tools.fact("blue", idempotency_key="k")
    again = await tools.fact("blue", idempotency_key="k", scope="", permanence="", importance="", tags="")
    assert again == first


async def test_row_15_a_refused_request_leaves_its_key_free(tools, archive):
    arguments = {"type": "fact", "id": str(uuid.uuid4()), "idempotency_key": "k"}
    assert (await tools.refusal("memory_confirm", **arguments)).startswith("not_found: ")
    assert (await tools.refusal("memory_confirm", **arguments)).startswith("not_found: ")
    assert await tools.fact(idempotency_key="k")
    assert await archive.count("idempotency_keys", tools.tenant) == 1


def test_a_fingerprint_tells_requests_apart_and_not_the_order_of_arguments():
    one, same = Request("t", {"a": 1, "b": None}), Request("t", {"b": None, "a": 1})
    assert one.fingerprint == same.fingerprint
    others = (Request("u", {"a": 1, "b": None}), Request("t", {"a": "1", "b": None}), Request("t", {"a": 1}))
    assert len({one.fingerprint, *(each.fingerprint for each in others)}) == 4


async def test_row_51_arguments_nested_too_deeply_are_invalid(tools):
    nested = "[" * 20_000 + "]" * 20_000
    fact = {"subject": "Ada", "predicate": "likes", "content": "tea"}
    assert (await tools.refusal("memory_store_fact", **fact, tags=nested)).startswith("invalid_input: ")
    entity = {"canonical_name": "Ada", "entity_type": "person"}
    metadata = '{"a":' * 20_000 + "1" + "}" * 20_000
    assert (await tools.refusal("entity_create", **entity, metadata=metadata)).startswith("invalid_input: ")
