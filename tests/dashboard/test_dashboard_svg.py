"""Pictures, word diffs and the numbers behind them, by value."""

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from markupsafe import Markup

from butlers.dashboard import svg, svg_graph
from butlers.dashboard.confidence_view import arithmetic
from butlers.dashboard.quotation import best_sentence
from butlers.dashboard.sentences import Sentence, describe, summarize
from butlers.dashboard.svg import Band, Mark
from butlers.dashboard.svg_graph import MAX_NODES, Node
from butlers.dashboard.word_diff import word_diff
from butlers.modules.memory.domain.decay import ConfidenceChange, ConfidenceStep, confidence_steps, fades_at
from butlers.modules.memory.domain.maturity import TrackRecord, describe_next_steps
from butlers.modules.memory.domain.model import CANDIDATE_DECAY_RATE, Maturity, Permanence

START = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"'&\u202e"


def days(number: float) -> timedelta:
    return timedelta(days=number)


def parse(picture: Markup) -> ET.Element:
    """The picture as XML: a text that is not escaped would not parse, or add an element."""
    assert isinstance(picture, Markup)
    assert "style=" not in picture
    return ET.fromstring(picture)  # noqa: S314 — our own text


def points(picture: Markup, kind: str) -> list[tuple[float, float]]:
    [line] = [each for each in parse(picture).iter("polyline") if each.get("class") == kind]
    return [(float(x), float(y)) for x, y in (each.split(",") for each in line.get("points", "").split())]


def texts(picture: Markup) -> list[str]:
    return [each.text or "" for each in parse(picture).iter("text")]


@pytest.mark.parametrize(
    ("confidence", "rate", "fades", "expires"),
    [
        (1.0, Permanence.STANDARD.decay_rate, 201, 374),
        (1.0, Permanence.STABLE.decay_rate, 805, 1498),
        (1.0, Permanence.VOLATILE.decay_rate, 54, 100),
        (1.0, Permanence.EPHEMERAL.decay_rate, 16, 30),
        (0.7, Permanence.STANDARD.decay_rate, 157, 330),
        (0.5, CANDIDATE_DECAY_RATE, 92, 230),
    ],
)
def test_the_days_until_a_memory_fades_and_expires(confidence, rate, fades, expires):
    for threshold, expected in ((0.2, fades), (0.05, expires)):
        at = fades_at(confidence, rate, START, threshold)
        assert at is not None
        assert round((at - START) / days(1)) == expected


def test_a_permanent_memory_never_fades_and_a_faded_one_did_when_it_was_confirmed():
    assert fades_at(1.0, Permanence.PERMANENT.decay_rate, START, 0.2) is None
    assert fades_at(1.0, 0.008, None, 0.2) is None
    assert fades_at(1.0, 0.008, START, 0.0) is None
    assert fades_at(0.1, 0.008, START, 0.2) == START
    assert fades_at(1.0, 1e-9, START, 0.2) is None


def test_the_curve_is_exact_and_jumps_at_a_confirmation():
    steps = [ConfidenceStep(START, 0.7, 0.008, "stored"), ConfidenceStep(START + days(50), 1.0, 0.008, "confirmed")]
    now = START + days(100)
    picture = svg.curve(steps, now, 0.2, 0.05)
    past, later = points(picture, "line"), points(picture, "later")
    height = 160.0
    # 0.7 · e^(-0.008 · 50) = 0.4692 just before the jump to 1, and e^(-0.4) = 0.6703 today.
    assert past[0][1] == pytest.approx(172 - height * 0.7, abs=0.1)
    jump = next(place for place, (_, y) in enumerate(past) if y == 12.0)
    assert past[jump - 1][0] == past[jump][0]
    assert past[jump - 1][1] == pytest.approx(172 - height * 0.4692, abs=0.1)
    assert past[-1][1] == pytest.approx(172 - height * 0.6703, abs=0.1)
    assert later[0] == past[-1]
    assert later[-1][1] > 172 - height * 0.05
    assert "fades 9 Sep 2026" in texts(picture)
    assert "expires 1 Mar 2027" in texts(picture)
    assert parse(picture).findtext("desc") == (
        "0.67 today. It falls below 0.2 on 9 Sep 2026 and below 0.05 on 1 Mar 2027."
    )


def test_the_curve_of_a_permanent_memory_is_flat_and_never_fades():
    picture = svg.curve([ConfidenceStep(START, 1.0, 0.0, "stored")], START, 0.2, 0.05)
    assert {y for _, y in points(picture, "later")} == {12.0}
    assert not [each for each in texts(picture) if "fades" in each or "expires" in each]
    assert parse(picture).findtext("desc") == "1.00 today. It falls below 0.2 never and below 0.05 never."


def test_the_steps_come_from_the_events_and_end_with_what_is_stored():
    changes = [
        ConfidenceChange(START + days(90), 0.5, 0.008, "edited"),
        ConfidenceChange(START + days(50), 1.0, None, "confirmed"),
        ConfidenceChange(START, 0.7, None, "stored"),
        ConfidenceChange(START + days(95), 1.0, None, "confirmed"),
    ]
    steps = confidence_steps(START, changes, 0.5, 0.002, START + days(90))
    assert steps == [
        ConfidenceStep(START, 0.7, 0.008, "stored"),
        ConfidenceStep(START + days(50), 1.0, 0.008, "confirmed"),
        ConfidenceStep(START + days(90), 0.5, 0.002, "edited"),
    ]


def test_steps_without_events_start_with_the_stored_confidence():
    assert confidence_steps(START, [], 0.7, 0.008, START) == [ConfidenceStep(START, 0.7, 0.008, "stored")]
    assert [each.at for each in confidence_steps(START, [], 1.0, 0.008, START + days(3))] == [START, START + days(3)]
    older = ConfidenceChange(START + days(1), None, None, "confirmed")
    assert confidence_steps(START, [older], 1.0, 0.008, START + days(3))[1].confidence == 1.0


def test_the_arithmetic_is_told_in_words():
    fact = {
        "stored_confidence": 1.0, "decay_rate": 0.002, "permanence": "stable", "last_confirmed_at": START,
        "confidence": 0.91,
    }  # fmt: skip
    assert arithmetic(fact, START + days(47)) == (
        "1.00 when last confirmed, 47 days ago; it decays by 0.002 a day (stable): "
        "1.00 \u00d7 e^(\u22120.002 \u00d7 47) = 0.91."
    )
    assert "does not decay" in arithmetic({**fact, "decay_rate": 0.0}, START)
    assert "never confirmed" in arithmetic({**fact, "last_confirmed_at": None}, START)


def test_a_harm_is_four_times_as_tall_as_a_success_and_points_down():
    marks = [
        Mark(START, "helpful", 1.0, "candidate"),
        Mark(START + days(1), "harmful", 0.199, "candidate"),
        Mark(START + days(9), "helpful", 0.667, "established"),
    ]
    picture = svg.strip(marks)
    bars = [each for each in parse(picture).iter("rect") if each.get("class") in {"good", "bad"}]
    assert [(each.get("class"), each.get("y"), each.get("height")) for each in bars] == [
        ("good", "12", "8"), ("bad", "20", "32"), ("good", "12", "8"),
    ]  # fmt: skip
    assert [float(each.get("x", "")) for each in bars] == pytest.approx([36, 101.8, 623], abs=0.1)
    stairs = points(picture, "line")
    assert [y for _, y in stairs[::2]] == pytest.approx([70, 150.1, 103.3], abs=0.1)
    assert {"0.3", "0.6", "0.8"} <= set(texts(picture))
    bands = [each.get("class") for each in parse(picture).iter("rect") if "maturity" in each.get("class", "")]
    assert bands == ["maturity-candidate", "maturity-candidate", "maturity-established"]


def test_many_marks_at_once_stay_apart_and_within_the_picture():
    picture = svg.strip([Mark(START, "helpful", 1.0, "proven")] * 300)
    places = [float(each.get("x", "")) for each in parse(picture).iter("rect") if each.get("class") == "good"]
    assert len(places) == 100
    assert min(b - a for a, b in pairwise(places)) == pytest.approx(5)
    assert places[0] >= 36
    assert places[-1] <= 628


def test_a_spark_has_a_bar_for_each_day_and_a_line_for_the_limit():
    bars = [each.get("height") for each in parse(svg.spark([0, 5, 10], "New facts")).iter("rect")]
    assert bars == ["1", "14", "28"]
    limited = parse(svg.spark([0, 5], "Tokens", limit=10))
    assert limited.find("line").get("y1") == "2"
    assert limited.findtext("desc") == "5 in 2 days, at most 5 in one."


def test_each_band_is_a_link_with_its_count():
    picture = parse(svg.bands([Band("0 to 0.2", "3", 0.5, "/facts?min=0&below=0.2")], "Confidence"))
    [link] = picture.iter("a")
    assert link.get("href") == "/facts?min=0&below=0.2"
    assert link.get("aria-label") == "3 from 0 to 0.2"
    assert link.find("rect").get("height") == "25"
    assert picture.get("role") == "group"


def test_the_parts_of_a_score_lie_side_by_side():
    rects = list(parse(svg.parts([("relevance", 0.4), ("recency", 0.25)], "Score 0.65")).iter("rect"))
    assert [(each.get("x"), each.get("width"), each.get("class")) for each in rects] == [
        (None, "120", "soft"), ("0", "48", "part-1"), ("48", "30", "part-2"),
    ]  # fmt: skip


def test_the_marks_of_a_rule_are_a_row():
    rects = parse(svg.mark_row(["helpful", "harmful"], "Marks")).iter("rect")
    assert [(each.get("x"), each.get("y"), each.get("class")) for each in rects] == [
        ("0", "0", "good"), ("5", "5", "bad"),
    ]  # fmt: skip


def test_a_chain_marks_the_current_version():
    nodes = [(Node(f"version {each}", f"/facts/{each}"), START + days(each)) for each in range(3)]
    picture = parse(svg_graph.chain(nodes, 1))
    assert [each.get("class") for each in picture.iter("circle")] == ["soft", "fill", "soft"]
    assert [each.get("href") for each in picture.iter("a")] == ["/facts/0", "/facts/1", "/facts/2"]


def test_the_graph_has_at_most_forty_nodes_and_says_how_many_are_left_out():
    nodes = [Node(f"likes {each}", f"/facts/{each}", [Node("an episode", "/episodes/1")]) for each in range(101)]
    more = Node("and 63 more", "/facts?entity=1")
    picture = svg_graph.ego("Ada", nodes, more)
    links = [each.get("href") for each in parse(picture).iter("a")]
    assert len(links) == MAX_NODES - 1
    assert links[-1] == "/facts?entity=1"
    assert "and 63 more" in texts(picture)
    assert svg_graph.ego("Ada", nodes, more) == picture


def test_the_graph_shows_children_while_there_is_room():
    nodes = [Node("likes", "/facts/1", [Node("an episode", f"/episodes/{each}") for each in range(2)])]
    links = [each.get("href") for each in parse(svg_graph.ego("Ada", nodes)).iter("a")]
    assert links == ["/facts/1", "/episodes/0", "/episodes/1"]


def test_every_text_in_a_picture_is_escaped():
    hostile = Node(HOSTILE, "/facts/1?a=1&b=2", [Node(HOSTILE, "/episodes/1")])
    pictures = [
        svg_graph.ego(HOSTILE, [hostile], hostile),
        svg_graph.chain([(hostile, START), (hostile, START)], 0),
        svg.bands([Band(HOSTILE, HOSTILE, 1.0, HOSTILE)], HOSTILE),
        svg.parts([(HOSTILE, 0.5)], HOSTILE),
        svg.spark([1], HOSTILE),
    ]
    for picture in pictures:
        assert "script" not in {each.tag for each in parse(picture).iter()}
        assert "\u202e" not in picture
        assert not re.search(r"<script|\"'", picture)


def test_a_word_diff_shows_what_was_removed_and_added():
    assert word_diff("eats no meat", "eats no meat and no fish") == [
        ("same", "eats no meat "), ("added", "and no fish"),
    ]  # fmt: skip
    assert word_diff("lives in Porto, she said", "lives in Lisbon, she said") == [
        ("same", "lives in "), ("removed", "Porto"), ("added", "Lisbon"), ("same", ", she said"),
    ]  # fmt: skip
    assert word_diff("same", "same") == [("same", "same")]
    assert word_diff("", "new") == [("added", "new")]


def test_a_large_change_is_shown_as_a_replacement():
    old, new = "a b " * 5_000, "b c " * 5_000
    assert [each.kind for each in word_diff(old, new)] == ["removed", "added"]


def test_the_sentence_of_an_episode_is_the_one_that_is_closest():
    text = "We met at noon. Ada eats no meat, she said!\nThen we went home."
    assert best_sentence(text, "Ada diet eats no meat") == "Ada eats no meat, she said!"
    assert best_sentence("Nothing fits", "zzz") == "Nothing fits"
    assert len(best_sentence("x" * 1000, "zzz")) == 240


RECORD = TrackRecord(Maturity.CANDIDATE, 0, 0, 0, 0.0, days(0))


@pytest.mark.parametrize(
    ("record", "sentences"),
    [
        (RECORD, ["Five successes make it established.", "Three harms turn it into a warning."]),
        (
            TrackRecord(Maturity.ESTABLISHED, 13, 13, 0, 1.0, days(19)),
            ["Two more successes and 11 days make it proven.", "Eight harms turn it into a warning."],
        ),
        (
            TrackRecord(Maturity.CANDIDATE, 4, 2, 2, 0.2, days(19)),
            ["Three more successes make it established.", "One more harm turns it into a warning."],
        ),
        (
            TrackRecord(Maturity.ESTABLISHED, 14, 14, 0, 1.0, days(40)),
            ["One more success makes it proven.", "Nine harms turn it into a warning."],
        ),
        (
            TrackRecord(Maturity.PROVEN, 15, 15, 0, 1.0, days(40)),
            [
                "It is proven: there is no higher level.",
                "One more harm makes it established again.",
                "Nine harms turn it into a warning.",
            ],
        ),
        (
            TrackRecord(Maturity.CANDIDATE, 3, 0, 3, 0.0, days(1), awaits_inversion=True),
            ["The next sweep turns it into a warning."],
        ),
        (
            TrackRecord(Maturity.ANTI_PATTERN, 3, 0, 3, 0.0, days(1)),
            ["It is a warning. Marks are counted and do not change that."],
        ),
    ],
)
def test_what_comes_next_for_a_rule_is_said_in_words(record, sentences):
    assert describe_next_steps(record) == sentences


def event(
    event_type: str, actor: str = "local", request: str = "r", at: datetime = START, **payload: object
) -> dict[str, object]:
    return {
        "event_type": event_type, "actor": actor, "payload": payload, "occurred_at": at, "request_id": request,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("happened", "sentence"),
    [
        (event("fact_created"), Sentence("local stored")),
        (event("fact_created", "consolidation"), Sentence("consolidation learned")),
        (event("fact_confirmed", confidence=1.0), Sentence("local confirmed", "confidence 1.00")),
        (event("fact_fading", "sweep", confidence=0.19), Sentence("sweep:", "began to fade at 0.19")),
        (event("rule_forgotten", "sweep", by="decay"), Sentence("sweep:", "expired")),
        (event("rule_forgotten"), Sentence("local forgot")),
        (
            event("rule_marked_helpful", maturity_before="candidate", maturity="established"),
            Sentence("local marked", "as helpful, from candidate to established"),
        ),
        (event("fact_confirmed_undone"), Sentence("local took back a change of", "(confirmed)")),
        (event("job_requested", job="reembed"), Sentence("local started the job reembed")),
        (event("fact_polished"), Sentence("local polished")),
    ],
)
def test_an_event_is_a_sentence(happened, sentence):
    assert describe(happened) == sentence


def test_many_events_of_one_request_share_a_line():
    many = [event("fact_fading", "sweep", "sweep") for _ in range(4)]
    few = [event("fact_created", request="a", at=START + days(1)) for _ in range(3)]
    lines = summarize([*many, *few], 10)
    assert [(line.event["event_type"], line.number) for line in lines] == [("fact_created", 1)] * 3 + [
        ("fact_fading", 4)
    ]
    assert len(summarize([*many, *few], 2)) == 2
