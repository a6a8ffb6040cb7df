"""Session summaries: their length, and the removal of injected memories."""

import json
import time

import pytest
from fastmcp import Client
from hypothesis import given
from hypothesis import strategies as st

from butlers.modules.memory.domain.context_block import fact_line, rule_line
from butlers.session_summary import (
    MAX_ANSWER_CHARACTERS,
    MAX_PROMPT_CHARACTERS,
    remove_injected,
    summarize_session,
)
from host.session_fixtures import LONG_MEMORY_TIMEOUT, THINK_RUNTIME, write_program

TEA = "drinks green tea with milk"
BLOCK = "\n".join(
    (
        "# Memory Context",
        "## Key Facts",
        fact_line("user", "tea", TEA, 1.0),
        fact_line("user", "more tea", f"{TEA} and honey", 0.5),
        fact_line("user", "cup", "blue", 0.9),
        "## Active Rules",
        rule_line("Ask before ordering (always)", "candidate", 0.0),
        "- [2026-01-02] Asked: Which tea? Done: answered without calling tools.",
    )
)


def test_what_was_asked_done_and_came_out_is_a_line_each():
    assert summarize_session("Order\ntea", {"b": 1, "a": 3}, "", answer=" Done.\n") == (
        "Asked: Order tea\nDone: called a 3 times, b.\nResult: Done."
    )
    assert summarize_session("Order", {}, "", error="out of tea") == (
        "Asked: Order\nDone: answered without calling tools.\nFailed: out of tea"
    )
    assert summarize_session("Order", {}, "", answer=" \n") == "Asked: Order\nDone: answered without calling tools."


@given(st.text(max_size=5000), st.text(max_size=5000), st.text(max_size=2000))
def test_whatever_is_said_there_are_three_lines_of_bounded_length(prompt, answer, injected):
    lines = summarize_session(prompt * 3, {}, injected, answer=answer * 3).split("\n")
    assert len(lines) <= 3
    assert len(lines[0]) <= MAX_PROMPT_CHARACTERS + len("Asked:  …")
    assert len(lines[-1]) <= MAX_ANSWER_CHARACTERS + len("Result:  …")


def test_a_memory_that_is_repeated_is_not_kept_again():
    text = f"You are right: the user {TEA}. And the rule: Ask before ordering (always)! I ordered some."
    assert remove_injected(text, BLOCK) == (
        "You are right: the user [recalled]. And the rule: [recalled]! I ordered some."
    )


def test_of_a_memory_that_contains_another_nothing_is_left():
    assert remove_injected(f"He {TEA} and honey.", BLOCK) == "He [recalled]."


def test_a_block_that_is_repeated_whole_leaves_no_memory():
    left = remove_injected(f"I was told:\n{BLOCK}\nThat is all.", BLOCK)
    assert TEA not in left
    assert "Ask before" not in left
    assert "Which tea?" not in left
    assert left.splitlines()[0] == "I was told:"
    assert left.splitlines()[-1] == "That is all."


@pytest.mark.parametrize("repeated", ["<b>drinks</b> green tea", "&lt;b>drinks&lt;/b> green tea"])
def test_a_memory_with_a_tag_is_recognized_as_it_reads_and_as_it_is_escaped(repeated):
    block = fact_line("user", "tea", "<b>drinks</b> green tea", 1.0)
    assert "<b>" not in block
    assert remove_injected(f"She {repeated}.", block) == "She [recalled]."


def test_words_too_short_to_be_a_memory_stay():
    assert remove_injected("The blue one.", BLOCK) == "The blue one."


@given(st.text(max_size=300))
def test_without_memories_everything_is_kept(text):
    assert remove_injected(text, "# Memory Context") == "\n".join(text.splitlines())


@pytest.mark.parametrize(
    ("injected", "answer"),
    [
        ("- " + " (confidence: " * 100_000, "done"),
        ("- " + "[a] " * 200_000 + "[" * 200_000, "done"),
        ("\n".join(f"- remembered thing {number}" for number in range(200_000)), "remembered thing 7 " * 400_000),
    ],
    ids=["scores", "labels", "many memories and a long answer"],
)
def test_row_50_a_text_made_to_take_long_is_summarized_in_time(injected, answer):
    started = time.process_time()
    summarize_session("Order", {}, injected, answer=answer)
    assert time.process_time() - started < 4


SESSION = f"{THINK_RUNTIME}[butler.sessions]\n{LONG_MEMORY_TIMEOUT}"


async def test_a_session_that_repeats_its_memories_teaches_nothing(folder, hosting, tenant):
    place = write_program(folder(SESSION), "cat; echo; echo Ordered.")
    async with hosting(place) as at:
        await at.call_tool("memory_store_fact", tenant, subject="user", predicate="tea", content=TEA)
        answered = await at.spawn("Order tea.", at.caller(tenant))
        (episode,) = await at.episodes(tenant)
    assert TEA in answered.text
    assert TEA not in episode["content"]
    assert episode["content"].endswith("Order tea. Ordered.")


async def test_learning_from_episodes_leaves_no_episode(folder, hosting, tenant):
    learned: dict[str, list[str]] = {"new_facts": [], "updated_facts": [], "new_rules": [], "confirmations": []}
    place = folder(f'{SESSION}[butler.auth]\ntenant = "{tenant}"\n')
    write_program(place, f"cat > stdin\ncat <<'END'\n```json\n{json.dumps(learned)}\n```\nEND")
    (place / "CLAUDE.md").write_text("You are a butler.")
    async with hosting(place) as at, Client(at.server.mcp) as client:
        await at.call_tool("memory_store_episode", content="Ada ordered tea.", butler=at.server.config.name)
        ran = (await client.call_tool("memory_run_consolidation", {})).structured_content
        episodes, row = await at.episodes(), await at.session()
    assert ran["status"] == "finished"
    assert [each["content"] for each in episodes] == ["Ada ordered tea."]
    assert (row["internal"], row["prompt"], row["answer"]) == (True, "", None)
    assert "Ada ordered tea." in (place / "stdin").read_text()
    assert "You are a butler." not in (place / "stdin").read_text()
