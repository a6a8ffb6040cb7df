"""Whom a name means and what a merge keeps: pure, so tried with anything."""

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
    MOST_FACTS,
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
def test_each_entity_is_there_once_and_no_better_match_of_it_was_found(found):
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
def test_the_order_is_total_and_no_matter_how_they_came(found, points, shared):
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
def test_a_score_that_is_none_is_refused(score):
    with pytest.raises(InvalidInput, match="a domain score is no score"):
        ResolutionHints(domain_scores={UUID(int=1): score})


@given(NAMES, st.sampled_from(["a", "B", "d"]))
def test_names_are_kept_once_whatever_their_case_and_never_the_canonical_one(names, canonical):
    kept = distinct_names(names, besides=canonical)
    assert len({name.lower() for name in kept}) == len(kept)
    assert canonical.lower() not in {name.lower() for name in kept}
    assert {name.lower() for name in names} <= {name.lower() for name in (*kept, canonical)}
    assert distinct_names(kept, besides=canonical) == kept


def party(number: int, name: str, aliases=(), **metadata) -> MergeSide:
    return MergeSide(UUID(int=number), name, tuple(aliases), metadata)


@given(NAMES, NAMES)
def test_a_merge_loses_no_name_and_no_metadata(theirs, ours):
    source, target = party(1, "S", theirs, a=1, b=1), party(2, "T", ours, b=2)
    aliases = entity_merge.merged_aliases(source, target)
    assert {name.lower() for name in (*theirs, *ours, "S")} - {"t"} <= {name.lower() for name in aliases}
    assert entity_merge.merged_metadata(source, target) == {"a": 1, "b": 2}
    gone = entity_merge.merged_away_metadata(source, target)
    assert gone == {"a": 1, "b": 1, "merged_into": str(target.id), "former_name": "S"}


BELIEFS = st.lists(
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


@given(BELIEFS)
def test_of_each_conflict_the_stronger_stays_and_of_equals_the_targets(beliefs):
    source, target = UUID(int=1), UUID(int=2)
    settled = entity_merge.resolve_conflicts(beliefs, source, target)
    gone = {each.superseded.id for each in settled}
    left = [(each.scope, each.predicate) for each in beliefs if each.id not in gone]
    assert len(left) == len(set(left)), "one live fact under a key"
    assert {(each.scope, each.predicate) for each in beliefs} == set(left), "and no key without one"
    for each in settled:
        assert each.kept.entity_id != each.superseded.entity_id
        assert each.kept.confidence >= each.superseded.confidence
        if each.kept.confidence == each.superseded.confidence:
            assert each.kept.entity_id == target


def test_the_page_says_what_the_domain_computes():
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
    assert f"of the {MOST_FACTS} latest at the most" in text


def test_what_goes_in_is_one_line_trimmed_and_composed():
    entity = NewEntity(canonical_name=" Chloe\u0301\n M ", entity_type=EntityType.PERSON, aliases=("CHLOÉ M", " x "))
    assert (entity.canonical_name, entity.aliases) == ("Chloé M", ("x",))
    assert EntityChange(metadata={"a\x00": "b\x00"}).metadata == {"a": "b"}
