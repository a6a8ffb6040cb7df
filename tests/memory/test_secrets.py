"""Secrets in memories to store: found, redacted or refused, and told nowhere."""

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import NewEpisode, NewFact
from butlers.modules.memory.domain.secrets import redact
from butlers.modules.memory.operations import writing
from butlers.modules.memory.secret_detector import detect_secrets
from memory.made_credentials import HARMLESS, credentials
from memory.memory_fixtures import REQUEST

ROOT = Path(__file__).parents[2]
MADE = credentials()
EVERYTHING = (
    "select e::text from episodes e where tenant_id = $1",
    "select f::text from facts f where tenant_id = $1",
    "select r::text from rules r where tenant_id = $1",
    "select e::text from memory_events e where tenant_id = $1",
)


def without_secrets(text: str) -> str:
    return redact(text, detect_secrets(text))


@pytest.mark.parametrize("name", MADE)
def test_a_made_credential_is_found_and_nothing_else(name):
    text, secret = MADE[name]
    before, after = text.split(secret)
    redacted = without_secrets(text)
    assert secret not in redacted
    assert redacted.startswith(before)
    assert redacted.endswith(after)
    assert "[redacted: " in redacted


@pytest.mark.parametrize("text", HARMLESS)
def test_a_text_without_a_secret_stays(text):
    assert without_secrets(text) == text


def test_the_documentation_and_the_questions_have_no_secret():
    # That page has URLs with passwords to choose.
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "use-your-own-postgres.md"]
    texts = [path.read_text(encoding="utf-8") for path in pages]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "bench" / "questions").iterdir()]
    assert [each.kind for text in texts for each in detect_secrets(text)] == []


@pytest.mark.parametrize("padding", [0, 3_900, 4_090, 8_000, 40_000])
def test_a_secret_is_found_wherever_it_stands_in_a_long_text(padding):
    for text, secret in MADE.values():
        long = "word " * (padding // 5) + text + " word" * 2_000
        assert secret not in without_secrets(long)


@given(st.lists(st.sampled_from([*(text for text, _ in MADE.values()), *HARMLESS, "İstanbul ", "\n"]), max_size=8))
def test_what_is_redacted_has_nothing_more_to_redact(texts):
    once = without_secrets(" ".join(texts))
    assert without_secrets(once) == once


async def test_a_store_says_what_it_redacted_and_nobody_tells_the_secret(tools, memory, archive, caplog):
    text, secret = MADE["github"]
    episode = await tools("memory_store_episode", content=text, butler=memory.butler)
    fact = await tools("memory_store_fact", subject="router", predicate="login", content=MADE["password in JSON"][0])
    rule = await tools("memory_store_rule", content=MADE["visa"][0])
    assert episode["redacted"] == {"GitHub Token": 1}
    assert (fact["redacted"], rule["redacted"]) == ({"password": 1}, {"card number": 1})
    assert "[redacted: GitHub Token]" in (await archive.row("episode", episode["id"]))["content"]
    events = await archive.events(tools.tenant)
    assert [json.loads(each["payload"])["redacted"] for each in events] == [
        {"GitHub Token": 1}, {"password": 1}, {"card number": 1},
    ]  # fmt: skip
    stored = str([await archive.connection.fetch(each, tools.tenant) for each in EVERYTHING])
    for hidden in (secret, MADE["password in JSON"][1], MADE["visa"][1]):
        assert hidden not in stored
        assert hidden not in caplog.text


def configured(memory, secrets: str):
    return replace(memory, config=memory.config.model_copy(update={"secrets": secrets}))


async def test_secrets_are_refused_or_kept_as_configured(memory, caller, archive):
    text, secret = MADE["stripe"]
    fact = NewFact(subject="shop", predicate="settings", content=text)
    with pytest.raises(InvalidInput) as refusal:
        await writing.store_fact(configured(memory, "refuse"), caller, fact, REQUEST)
    assert secret not in str(refusal.value)
    assert await archive.everything(caller.tenant) == []
    stored = await writing.store_fact(configured(memory, "keep"), caller, fact, REQUEST)
    assert "redacted" not in stored
    assert secret in (await archive.row("fact", stored["id"]))["content"]


async def test_a_megabyte_does_not_hold_up_the_event_loop(memory, caller):
    text = ("she said that password is not what it was and api_key=abc " * 17_000)[:999_000]
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            started = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - started)

    watching = asyncio.create_task(watch())
    episode = NewEpisode(content=text, butler=memory.butler)
    await writing.store_episode(memory, caller, episode, REQUEST)
    done.set()
    await watching
    assert longest < 0.5
