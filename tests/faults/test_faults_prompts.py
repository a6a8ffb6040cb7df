"""Texts made to leave their place in a prompt, through every path into one (row 46)."""

import json
import re

import pytest

from butlers.agents import CLAUDE_CODE
from butlers.hooks.session_start import session_start
from butlers.modules.memory.operations import consolidation
from memory.memory_fixtures import write_butler
from memory.scripted_model import ScriptedModel, with_model
from prompt_corpus import HOSTILE, ORDINARY, invisible_in, tags_in

BATCHES = [HOSTILE[start : start + 6] for start in range(0, len(HOSTILE), 6)]
OWN_TAGS = re.compile(r'<episode id="[^"<>]*" at="[^"<>]*" importance="[^"<>]*">|</episode>|</?episode_content>')
CONTEXT_HEADINGS = ["# Memory Context", "## Key Facts", "## Active Rules", "## Recent Episodes"]
MATERIAL_HEADINGS = ["## Predicates in use", "## Known facts", "## Known rules", "## Episodes"]


async def store(tools, memory, texts):
    """Store each text as the content and key of a fact, as a rule and as an episode."""
    for number, text in enumerate(texts):
        await tools.fact(f"{text} tea", subject=f"{text} {number}", predicate=f"{text} {number}")
        await tools.rule(f"{text} Offer tea {number}")
        await tools("memory_store_episode", content=f"{text} tea", butler=memory.butler)


@pytest.fixture
def context(tools, memory):
    async def read():
        return await tools("memory_context", trigger_prompt="tea", butler=memory.butler)

    return read


@pytest.fixture
def hook_output(tmp_path, memory, caller, environment):
    async def read():
        folder = write_butler(tmp_path, memory.butler, f'[butler.auth]\ntenant = "{caller.tenant}"\n')
        output = await session_start(folder, json.dumps({"cwd": "/projects/tea"}), CLAUDE_CODE, environment)
        return json.loads(output)["hookSpecificOutput"]["additionalContext"]

    return read


@pytest.fixture
def material(memory, caller):
    async def read():
        model = ScriptedModel()
        await consolidation.consolidate(with_model(memory, model), caller)
        (request,) = model.requests
        return request.prompt.split("\n# Material\n")[1]

    return read


def assert_harmless(text, headings, items):
    """Assert that the text has its own headings and items, and no tag or invisible character."""
    lines = text.splitlines()
    assert lines == text.rstrip("\n").split("\n")
    assert [line for line in lines if line.startswith("#")] == headings
    assert len([line for line in lines if line.startswith("- ")]) == items
    assert (tags_in(text), invisible_in(text)) == ([], [])


@pytest.mark.parametrize("texts", BATCHES)
async def test_row_46_no_memory_leaves_its_line_in_a_context(tools, memory, context, texts):
    await store(tools, memory, texts)
    assert_harmless(await context(), CONTEXT_HEADINGS, 3 * len(texts))


@pytest.mark.parametrize("texts", BATCHES)
async def test_row_46_no_memory_leaves_its_line_in_the_output_of_a_hook(tools, memory, hook_output, texts):
    await store(tools, memory, texts)
    assert_harmless(await hook_output(), CONTEXT_HEADINGS, 3 * len(texts))


@pytest.mark.parametrize("texts", BATCHES)
async def test_row_46_no_memory_leaves_its_tag_in_the_prompt_of_consolidation(tools, memory, material, texts):
    await store(tools, memory, texts)
    text = await material()
    assert len(OWN_TAGS.findall(text)) == 4 * len(texts)
    assert_harmless(OWN_TAGS.sub("", text), MATERIAL_HEADINGS, 2 * len(texts))


async def test_ordinary_text_stays_as_it_is_in_a_context_and_a_hook(tools, memory, context, hook_output):
    for number, text in enumerate(ORDINARY):
        await tools.fact(text, predicate=f"note {number}")
    for block in (await context(), await hook_output()):
        for number, text in enumerate(ORDINARY):
            assert f"- [user] [note {number}]: {text} (confidence: 1.00)\n" in f"{block}\n"
