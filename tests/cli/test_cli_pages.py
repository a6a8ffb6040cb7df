"""The reference page of tools and the page about scores, compared with the code."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from fastmcp import Client

from butlers import app
from butlers.modules.memory.config import RetrievalConfig
from butlers.modules.memory.domain import fusion, ranking
from butlers.modules.memory.domain.decay import effective_confidence
from butlers.modules.memory.domain.model import CANDIDATE_DECAY_RATE, MemoryType, Permanence, SearchMode
from butlers.modules.memory.domain.scoring import ScoreWeights, recency
from butlers.modules.memory.tools import TOOLS as MEMORY_TOOLS

JOBS = ("consolidate", "consolidation_retry", "decay_sweep", "episode_cleanup", "reembed", "index_upkeep")
DOCS = Path(__file__).parents[2] / "docs"
TOOLS = (DOCS / "reference" / "tools.md").read_text(encoding="utf-8")
SCORING = (DOCS / "explanation" / "scoring.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(json|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sections() -> dict[str, str]:
    """Return the section of each tool, in the order of the page."""
    _, *parts = re.split(r"^## `(\w+)`$", TOOLS, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def examples(section: str) -> list[tuple[dict[str, object], object]]:
    """Return the calls of a section with their answers."""
    blocks = [json.loads(text) if kind == "json" else text for kind, text in FENCE.findall(section)]
    return list(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.fixture(scope="module")
async def served(tmp_path_factory, worker, environment):
    """Serve a butler named general with all its tools and a new tenant."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "butler.toml").write_text(
        f'[butler]\nname = "general"\nport = 0\n[butler.auth]\ntenant = "t{uuid4().hex[:12]}"\n'
        '[modules.memory]\nenabled = true\ntoolset = "full"\n[modules.memory.schedule]\n'
        + "".join(f'{job} = "0 0 29 2 *"\n' for job in JOBS)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BUTLERS_HOME", str(environment.home))
        async with (
            app.open_butler(app.load_configuration(folder), environment) as butler,
            app.open_server(butler) as server,
        ):
            yield server


async def test_every_tool_is_documented_with_its_description_and_arguments(served):
    async with Client(served.mcp) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    documented = sections()
    assert set(tools) == set(documented)
    for each in MEMORY_TOOLS:
        assert f"toolset `{each.toolset}`*" in documented[each.name], each.name
    for name, tool in tools.items():
        assert tool.description in documented[name], name
        required = set(tool.input_schema.get("required", ()))
        wanted = {(argument, argument in required) for argument in tool.input_schema["properties"]}
        rows = re.findall(r"^\| `(\w+)`( \(optional\))? \|", documented[name], re.MULTILINE)
        assert {(argument, not optional) for argument, optional in rows} == wanted, name
        reads = "*only reads" in documented[name]
        assert reads is tool.annotations.read_only_hint, name
        assert examples(documented[name]), name


async def test_every_documented_call_answers_as_documented(served):
    known: dict[str, str] = {}
    async with Client(served.mcp) as client:
        for name, section in sections().items():
            for arguments, documented in examples(section):
                sent = {word: known.get(str(value), value) for word, value in arguments.items()}
                answer = (await client.call_tool(name, sent)).structured_content
                answer = answer["result"] if set(answer) == {"result"} else answer
                assert shape(answer) == shape(documented), name
                known |= dict(zip(ids(documented), ids(answer), strict=True))
    assert len(known) >= 4


def shape(value: object) -> object:
    """Return names and types without values."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    if isinstance(value, str) and value.startswith("# Memory Context"):
        return re.sub(r"\d{4}-\d\d-\d\d", "a day", value)
    return "a number" if type(value) in {int, float} else type(value).__name__


def ids(value: object) -> list[str]:
    """Return all ids of an answer in order."""
    if isinstance(value, dict):
        return [each for name in sorted(value) for each in ids(value[name])]
    if isinstance(value, list):
        return [each for one in value for each in ids(one)]
    return (
        [value]
        if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", value)
        else []
    )


def table(*columns: str) -> list[dict[str, str]]:
    """Return the rows of the table with these columns."""
    heading = "| " + " | ".join(columns) + " |\n"
    body = SCORING.split(heading, 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    return [dict(zip(columns, line.strip("| ").split(" | "), strict=True)) for line in body]


GIVEN = table(
    "memory",
    "semantic rank",
    "keyword rank",
    "importance",
    "days unused",
    "stored confidence",
    "rate",
    "days unconfirmed",
)
RESULTS = table("memory", "rrf_score", "relevance", "importance", "recency", "confidence", "score")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEPTH = RetrievalConfig().default_limit


def candidate(number: int, row: dict[str, str], unused: float | None = None) -> ranking.Candidate:
    confirmed = NOW - timedelta(days=float(row["days unconfirmed"]))
    return ranking.Candidate(
        MemoryType.FACT,
        UUID(int=number),
        NOW,
        semantic_rank=int(row["semantic rank"]),
        keyword_rank=None if row["keyword rank"] == "none" else int(row["keyword rank"]),
        importance=float(row["importance"]),
        idle_days=float(row["days unused"]) if unused is None else unused,
        confidence=effective_confidence(float(row["stored confidence"]), float(row["rate"]), confirmed, NOW),
    )


def scored(**unused: float) -> dict[str, ranking.ScoredMemory]:
    names = [row["memory"] for row in GIVEN]
    found = [candidate(n, row, unused.get(row["memory"])) for n, row in enumerate(GIVEN)]
    return {
        names[each.candidate.id.int]: each
        for each in ranking.rank_recall(found, SearchMode.HYBRID, ScoreWeights(), {}, DEPTH)
    }


def test_the_worked_example_is_what_the_domain_computes():
    found = scored()
    assert list(found) == [row["memory"] for row in RESULTS]
    for row in RESULTS:
        each = found[row["memory"]]
        assert each.signals is not None
        assert f"{each.rrf_score:.5f}" == row["rrf_score"]
        assert f"{each.signals.relevance:.4f}" == row["relevance"]
        assert each.signals.importance == float(row["importance"])
        assert f"{each.signals.recency:.4f}" == row["recency"]
        assert f"{each.signals.confidence:.4f}" == row["confidence"]
        assert f"{each.score:.4f}" == row["score"]


def test_the_numbers_in_the_text_are_what_the_domain_computes():
    least, largest = (
        fusion.rrf_score(DEPTH, None, DEPTH),
        fusion.rrf_score(1, 1, DEPTH),
    )
    assert f"1/80 + 1/81 = {least:.5f}" in SCORING
    assert f"2/61 = {largest:.5f}" in SCORING
    assert f"fuses the first {DEPTH}" in SCORING
    assert [recency(0), recency(7), recency(14)] == pytest.approx([1.0, 0.5, 0.25])
    weights = ScoreWeights()
    assert (
        f"score = {weights.relevance} * relevance + {weights.importance} * importance"
        f" + {weights.recency} * recency + {weights.confidence} * confidence"
    ) in SCORING.replace("\u00d7", "*")
    later = scored(diet=14)
    assert next(iter(later)) == "diet"
    assert f"(0.25) and its score {later['diet'].score:.3f}" in SCORING
    assert f"has the rate {CANDIDATE_DECAY_RATE}" in SCORING


def test_the_rates_of_permanence_are_those_of_the_domain():
    rows = table("permanence", "rate a day", "half of it is left after")
    assert {row["permanence"]: float(row["rate a day"]) for row in rows} == {
        each.value: each.decay_rate for each in Permanence
    }
    for row in rows[1:]:
        days = float(row["half of it is left after"].removesuffix(" days"))
        confirmed = NOW - timedelta(days=days)
        assert effective_confidence(1, float(row["rate a day"]), confirmed, NOW) == pytest.approx(0.5, abs=0.01)
