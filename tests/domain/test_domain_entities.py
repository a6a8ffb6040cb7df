"""Resolution of names and merging of entities."""

import re
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from butlers.errors import InvalidInput
from butlers.modules.memory.domain import entity_merge
from butlers.modules.memory.domain.entities import EntityChange, EntityType, NewEntity, distinct_names
from butlers.modules.memory.domain.entity_merge import ConflictingFact, MergeSide
from butlers.modules.memory.domain.entity_resolution import (
    MAX_COMPARED_FACTS,
    EntityCandidate,
    KeywordOverlap,
    NameMatch,
    ResolutionHints,
    best_matches,
    rank_candidates,
)

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "entities.md"
IDS = st.integers(1, 4).map(lambda number: UUID(int=number))
CANDIDATES = st.builds(
    EntityCandidate,
    IDS,
    st.sampled_from("ABC"),
    st.just("person"),
    st.just(()),
    st.sampled_from(NameMatch),
    st.booleans(),
)
NAMES = st.lists(st.sampled_from(["a", "A", "b", "B", "ä", "Ä", "c"]), max_size=6)


@given(st.lists(CANDIDATES))
def test_each_entity_appears_once_with_its_best_match(found):
    best = best_matches(found)
    assert {each.id for each in best} == {each.id for each in found}
    assert len(best) == len({each.id for each in best})
    for each in best:
        assert each.match.score <= max(one.match.score for one in found if one.id == each.id)
    for tier in (NameMatch.EXACT, NameMatch.ALIAS):
        written = {one.id for one in found if one.match is tier and one.as_written}
        claimed = {one.id for one in best if one.match is tier}
        assert claimed <= written or not written


@given(st.lists(CANDIDATES), st.dictionaries(IDS, st.floats(-50, 50)), st.dictionaries(IDS, st.integers(0, 9)))
def test_the_order_is_total_and_does_not_depend_on_the_order_of_arrival(found, points, shared):
    overlaps = {each: KeywordOverlap(count, 10) for each, count in shared.items()}
    best = best_matches(found)
    answer = rank_candidates(best, overlaps, points)
    assert answer == rank_candidates(list(reversed(best)), overlaps, points)
    keys = [(-each.score, each.candidate.canonical_name, each.candidate.id) for each in answer]
    assert keys == sorted(keys)
    for each in answer:
        assert each.score == round(each.score, 4)


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_boost_lies_between_nothing_and_twenty(shared, more):
    assert 0 <= KeywordOverlap(shared, shared + more).boost <= 20
    assert KeywordOverlap(0, 0).boost == 0


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e9])
def test_a_domain_score_out_of_range_is_refused(score):
    with pytest.raises(InvalidInput, match="a domain score is out of range"):
        ResolutionHints(domain_scores={UUID(int=1): score})


@given(NAMES, st.sampled_from(["a", "B", "d"]))
def test_names_are_distinct_ignoring_case_and_never_the_canonical_one(names, canonical):
    kept = distinct_names(names, excluding=canonical)
    assert len({name.lower() for name in kept}) == len(kept)
    assert canonical.lower() not in {name.lower() for name in kept}
    assert {name.lower() for name in names} <= {name.lower() for name in (*kept, canonical)}
    assert distinct_names(kept, excluding=canonical) == kept


def side(number: int, name: str, aliases=(), **metadata) -> MergeSide:
    return MergeSide(UUID(int=number), name, tuple(aliases), metadata)


@given(NAMES, NAMES)
def test_a_merge_loses_no_name_and_no_metadata(source_aliases, target_aliases):
    source, target = side(1, "S", source_aliases, a=1, b=1), side(2, "T", target_aliases, b=2)
    aliases = entity_merge.merged_aliases(source, target)
    assert {name.lower() for name in (*source_aliases, *target_aliases, "S")} - {"t"} <= {
        name.lower() for name in aliases
    }
    assert entity_merge.merged_metadata(source, target) == {"a": 1, "b": 2}
    source_metadata = entity_merge.merged_away_metadata(source, target)
    assert source_metadata == {"a": 1, "b": 1, "merged_into": str(target.id), "former_name": "S"}


CONFLICTING_FACTS = st.lists(
    st.builds(
        ConflictingFact,
        st.uuids(),
        IDS.filter(lambda each: each.int < 3),
        st.sampled_from(["global", "x"]),
        st.sampled_from("pq"),
        st.sampled_from([0.1, 0.5, 0.5, 1.0]),
    ),
    unique_by=lambda each: (each.entity_id, each.scope, each.predicate),
)


@given(CONFLICTING_FACTS)
def test_the_higher_confidence_wins_a_conflict_and_the_target_a_tie(facts):
    source, target = UUID(int=1), UUID(int=2)
    resolutions = entity_merge.resolve_conflicts(facts, source, target)
    superseded = {each.superseded.id for each in resolutions}
    keys = [(each.scope, each.predicate) for each in facts if each.id not in superseded]
    assert len(keys) == len(set(keys)), "one live fact for a key"
    assert {(each.scope, each.predicate) for each in facts} == set(keys), "and no key without one"
    for each in resolutions:
        assert each.kept.entity_id != each.superseded.entity_id
        assert each.kept.confidence >= each.superseded.confidence
        if each.kept.confidence == each.superseded.confidence:
            assert each.kept.entity_id == target


def test_the_documented_scores_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    scores = dict(re.findall(r"^\| `(\w+)` \| .* \| (\d+) \|$", text, re.MULTILINE))
    assert {name: float(score) for name, score in scores.items()} == {each.value: each.score for each in NameMatch}
    for name, base, shared, total, boost, score in re.findall(
        r"^\| (Chloe \w+) \| (\d+) \| 20 . (\d)/(\d) = (\d+) \| (\d+) \|$", text, re.MULTILINE
    ):
        assert KeywordOverlap(int(shared), int(total)).boost == float(boost), name
        candidate = EntityCandidate(UUID(int=1), name, "person", (), NameMatch.ALIAS)
        overlaps = {candidate.id: KeywordOverlap(int(shared), int(total))}
        assert float(base) == candidate.match.score
        assert rank_candidates([candidate], overlaps, {})[0].score == float(score)
    assert text.count("| Chloe Smith |") == text.count("| Chloe Martin |") == 2
    assert f"of the {MAX_COMPARED_FACTS} latest at most" in text


def test_a_name_is_one_trimmed_line_of_composed_characters():
    entity = NewEntity(canonical_name=" Chloe\u0301\n M ", entity_type=EntityType.PERSON, aliases=("CHLOÉ M", " x "))
    assert (entity.canonical_name, entity.aliases) == ("Chloé M", ("x",))
    assert EntityChange(metadata={"a\x00": "b\x00"}).metadata == {"a": "b"}
