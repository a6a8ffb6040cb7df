"""Readers of other memory systems on realistic files."""

import json

import pytest

from butlers.cli import importing
from butlers.errors import InvalidInput
from butlers.memory_formats import (
    FORMAT_NAMES,
    ForeignEntity,
    ForeignEpisode,
    ForeignFact,
    ForeignLink,
    ForeignRule,
    LeftOut,
    Problem,
    Source,
    find_format,
    read_records,
)

from .foreign_samples import SAMPLES, mcp_memory_service_database, mem0_history


@pytest.fixture
def read(tmp_path):
    def records(sample, name, kind=object):
        return [each for each in read_records(sample(tmp_path), name) if isinstance(each, kind)]

    return records


def contents(records):
    return [each.content for each in records]


def test_every_format_has_a_sample_and_stands_in_the_help():
    assert set(SAMPLES) == set(FORMAT_NAMES)
    (help_text,) = [each.help for each in importing.import_.__annotations__["format_"].__metadata__]
    assert all(name in help_text for name in FORMAT_NAMES)


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "lines"])
def test_a_format_is_recognised(tmp_path, name):
    with Source(SAMPLES[name](tmp_path)) as source:
        assert find_format("auto", source).name == name


@pytest.mark.parametrize(
    ("sample", "name"), [(mem0_history, "mem0"), (mcp_memory_service_database, "mcp-memory-service")]
)
def test_a_database_is_recognised(tmp_path, sample, name):
    with Source(sample(tmp_path)) as source:
        assert find_format("auto", source).name == name


@pytest.mark.parametrize("content", ["", "hello", "{}", "[]", '{"format":"butlers-memory"}', "PK\x03\x04"])
def test_a_file_of_no_known_format_is_refused_with_a_way_out(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InvalidInput) as refused:
        list(read_records(tmp_path / "a.json"))
    assert refused.value.hint


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path):
    with pytest.raises(InvalidInput, match="no format zep") as refused:
        list(read_records(SAMPLES["lines"](tmp_path), "zep"))
    assert all(name in refused.value.hint for name in FORMAT_NAMES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_has_no_problem_and_reads_the_same_twice(tmp_path, name):
    path = SAMPLES[name](tmp_path, 3)
    records = list(read_records(path, name))
    assert [each for each in records if isinstance(each, Problem)] == []
    assert list(read_records(path, name)) == records


def test_observations_become_facts_of_an_entity_and_relations_facts_with_a_tag(read):
    records = read(SAMPLES["mcp-memory"], "mcp-memory")
    ann = next(each for each in records if isinstance(each, ForeignEntity))
    assert (ann.name, ann.entity_type, ann.aliases) == ("Ann_Weber_0", "person", ("Ann Weber 0",))
    facts = [each for each in records if isinstance(each, ForeignFact)]
    assert [(each.subject, each.predicate, each.content) for each in facts if "relation" in each.tags] == [
        ("Ann_Weber_0", "maintains", "Shop"),
        ("Ann_Weber_0", "maintains", "Nobody"),
    ]
    assert all(each.entity == each.subject for each in facts)


def test_claude_codes_feedback_becomes_a_rule_and_its_index_is_left_out(read):
    records = read(SAMPLES["claude-code"], "claude-code")
    (rule,) = [each for each in records if isinstance(each, ForeignRule)]
    assert rule.content.startswith("Ann wants pnpm")
    assert rule.updated_at.isoformat() == "2026-10-02T10:00:00+00:00"
    facts = {each.subject: each for each in records if isinstance(each, ForeignFact)}
    assert facts["shop"].predicate == "shop_toolchain"
    assert facts["user"].content == "Ann is the owner of the shop."
    assert ForeignLink("-code-shop/prefers-pnpm-0", "-code-shop/shop-toolchain") in records
    assert LeftOut("MEMORY.md, the index of the other files") in records


def test_a_memory_folder_alone_has_the_same_ids_as_all_projects(tmp_path):
    SAMPLES["claude-code"](tmp_path)
    project = tmp_path / "projects" / "-code-shop"
    paths = (tmp_path, tmp_path / "projects", project, project / "memory")
    assert (
        len(
            {
                frozenset(each.id for each in read_records(path, "claude-code") if hasattr(each, "id"))
                for path in paths
            }
        )
        == 1
    )


def test_a_transcript_becomes_the_episode_that_the_hook_would_store(read):
    (episode,) = read(SAMPLES["claude-code-sessions"], "claude-code-sessions", ForeignEpisode)
    assert episode.content.startswith("Asked: Fix the test of part 0\n")
    assert episode.session == episode.id == "0f0e0d0c-0b0a-4908-8706-000000000000"
    assert episode.created_at.isoformat() == "2026-10-02T10:00:00+00:00"


def test_mem0_copies_and_expired_memories_are_left_out(read):
    records = read(SAMPLES["mem0"], "mem0")
    facts = [each for each in records if isinstance(each, ForeignFact)]
    assert [(each.subject, each.predicate) for each in facts] == [("ann", "preferences"), ("ann", "lives_in")]
    assert sorted(each.reason for each in records if isinstance(each, LeftOut)) == [
        "a memory that has expired",
        "a memory without a text",
        "the same text of the same user again",
    ]


def test_a_mem0_page_and_a_bare_list_are_read_alike(tmp_path):
    page = json.loads(SAMPLES["mem0"](tmp_path).read_text())
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(page["results"]))
    page = list(read_records(tmp_path / "mem0.json", "mem0"))
    assert [each for each in page if "relation" not in getattr(each, "tags", ())][:5] == list(
        read_records(bare, "mem0")
    )


def test_the_history_of_mem0_gives_the_last_text_of_what_was_not_deleted(read):
    assert contents(read(mem0_history, "mem0", ForeignFact)) == ["Ann drinks tea"]


def test_memories_of_claude_are_split_by_headings_and_named_after_projects(read):
    facts = read(SAMPLES["claude"], "claude", ForeignFact)
    assert [(each.subject, each.predicate, each.content) for each in facts] == [
        ("user", "work_context", "Ann is a developer in Graz."),
        ("user", "personal_context", "Drinks tea."),
        ("Shop", "purpose_context", "Shop relaunch."),
    ]
    (rule,) = read(SAMPLES["claude"], "claude", ForeignRule)
    assert rule.content == "Shop: Answer in German."
    (episode,) = read(SAMPLES["claude"], "claude", ForeignEpisode)
    assert episode.content == "Conversation: Trip 0\nAsked: When does train 0 go?\nResult: At 9:12."


def test_a_chatgpt_conversation_is_its_current_branch_without_hidden_messages(read):
    records = read(SAMPLES["chatgpt"], "chatgpt")
    (episode,) = [each for each in records if isinstance(each, ForeignEpisode)]
    assert (
        episode.content == "Conversation: Trip 0 to Graz\nAsked: When does train 0 go?\nResult: Train 0 goes at 9:12."
    )
    (fact,) = [each for each in records if isinstance(each, ForeignFact)]
    assert (fact.predicate, fact.content) == ("saved_memory", "Ann takes the train.")


def test_a_note_becomes_an_entity_with_observations_relations_and_text(read):
    facts = read(SAMPLES["basic-memory"], "basic-memory", ForeignFact)
    assert [(each.predicate, each.content) for each in facts] == [
        ("decision", "Deploy only from main #release"),
        ("decision", "Never on a Friday"),
        ("part_of", "Shop"),
        ("depends_on", "PostgreSQL 18"),
        ("note", "Free text stays text.\n\n- [ ] a task"),
    ]
    assert facts[0].tags == ("shop", "deploy", "release")
    assert facts[0].metadata["context"] == "after the March outage"


def test_the_service_keeps_types_tags_and_relations(read):
    (fact,) = read(SAMPLES["mcp-memory-service"], "mcp-memory-service", ForeignFact)
    assert (fact.subject, fact.predicate, fact.importance, fact.tags) == (
        "shop",
        "decision",
        8.0,
        ("shop", "decision"),
    )
    assert contents(read(SAMPLES["mcp-memory-service"], "mcp-memory-service", ForeignEpisode)) == ["We met Ann."]
    assert read(mcp_memory_service_database, "mcp-memory-service", ForeignLink)[0] == ForeignLink(
        "h1", "h2", "contradicts"
    )


def test_an_agent_file_gives_blocks_and_messages_and_no_secret(read):
    records = read(SAMPLES["letta"], "letta")
    assert contents([each for each in records if isinstance(each, ForeignFact)]) == [
        "Name: Ann",
        "Likes tea of kind 0",
    ]
    assert [each.is_persona for each in records if isinstance(each, ForeignRule)] == [True]
    assert "secret" not in repr(records)


def test_edges_are_derived_from_their_episodes_and_invalid_ones_are_left_out(read):
    records = read(SAMPLES["graphiti"], "graphiti")
    assert ForeignLink("d0", "s1", "derived_from") in records
    assert LeftOut("an edge that no longer holds") in records
    assert [each.predicate for each in records if isinstance(each, ForeignFact)] == ["summary", "lives_in:Graz"]
