"""Pictures as SVG: pure functions of their values. Every text is escaped, and colours come from the style sheet."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from markupsafe import Markup, escape

from butlers.dashboard.rendering import one_line
from butlers.modules.memory.domain.decay import ConfidenceStep, effective_confidence, fades_at
from butlers.modules.memory.domain.maturity import (
    ESTABLISHED_EFFECTIVENESS,
    INVERSION_EFFECTIVENESS,
    PROVEN_EFFECTIVENESS,
)
from butlers.visible_text import escape_control_characters

MAX_MARKS = 100
WIDTH = 640.0
LEFT, RIGHT = 36.0, 628.0
_STEP = 4.0
"""Pixels between two points of a curve; each point has its exact value."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on a rule, and the rule's effectiveness and maturity after it."""

    at: datetime
    outcome: str
    effectiveness: float
    maturity: str


@dataclass(frozen=True, slots=True)
class Band:
    """A range of values, the number of memories in it and the link to them."""

    label: str
    count: str
    share: float
    href: str


def curve(steps: Sequence[ConfidenceStep], now: datetime, fading_below: float, expired_below: float) -> Markup:
    """Return the confidence over time: solid until now, dashed from then on, with the thresholds it falls below."""
    last = steps[-1]
    fades = fades_at(last.confidence, last.rate, last.at, fading_below)
    expires = fades_at(last.confidence, last.rate, last.at, expired_below)
    start = steps[0].at
    end = max(expires or now + max(now - start, timedelta(days=30)), now)
    scale = _Scale(start, end + (end - start) * 0.03, top=12.0, bottom=172.0)
    ends = [each.at for each in steps[1:]] + [max(now, last.at)]
    past = [point for step, until in zip(steps, ends, strict=True) for point in _decay(step, step.at, until, scale)]
    dates = f"It falls below {fading_below:g} {_on(fades)} and below {expired_below:g} {_on(expires)}."
    today = scale.x(now)
    return picture(
        200,
        "Confidence over time",
        f"{effective_confidence(last.confidence, last.rate, last.at, now):.2f} today. {dates}",
        *(_threshold(value, scale) for value in (1.0, fading_below, expired_below)),
        line(today, 12, today, 172, "limit"),
        _path(past, "line"),
        _path(_decay(last, max(now, last.at), scale.end, scale), "later"),
        *(dot(scale.x(each.at), scale.y(each.confidence), f"{each.reason} {format_date(each.at)}") for each in steps),
        *([label(scale.x(fades) + 4, scale.y(fading_below) - 4, f"fades {format_date(fades)}")] if fades else []),
        *_time_labels(scale, start, now, expires),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    start: datetime
    end: datetime
    top: float
    bottom: float

    def x(self, at: datetime) -> float:
        whole = max((self.end - self.start).total_seconds(), 1.0)
        return LEFT + (RIGHT - LEFT) * min(max((at - self.start).total_seconds() / whole, 0.0), 1.0)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * value


def _decay(step: ConfidenceStep, since: datetime, until: datetime, scale: _Scale) -> list[tuple[float, float]]:
    count = max(math.ceil((scale.x(until) - scale.x(since)) / _STEP), 1)
    times = [since + (until - since) * (place / count) for place in range(count + 1)]
    values = [effective_confidence(step.confidence, step.rate, step.at, at) for at in times]
    return [(scale.x(at), scale.y(value)) for at, value in zip(times, values, strict=True)]


def _threshold(value: float, scale: _Scale) -> Markup:
    y = scale.y(value)
    return line(LEFT, y, RIGHT, y, "limit") + label(LEFT - 4, y + 4, f"{value:g}", "end")


def _time_labels(scale: _Scale, start: datetime, now: datetime, expires: datetime | None) -> Iterable[Markup]:
    today = scale.x(now)
    if today - LEFT > 110:
        yield label(LEFT, 190, format_date(start))
    if RIGHT - today > 150 or expires is None:
        yield label(min(today, RIGHT - 20), 190, "today", "middle" if today - LEFT > 20 else "start")
    if expires is not None:
        yield label(scale.x(expires), 190, f"expires {format_date(expires)}", "end")


def strip(marks: Sequence[Mark]) -> Markup:
    """Return a rule's marks, oldest left, over its effectiveness after each; a harm is four times as tall."""
    marks = marks[-MAX_MARKS:]
    scale = _Scale(marks[0].at, marks[-1].at, top=70.0, bottom=170.0)
    places = _spread([scale.x(mark.at) for mark in marks], gap=5.0)
    helpful = sum(mark.outcome == "helpful" for mark in marks)
    thresholds = (INVERSION_EFFECTIVENESS, ESTABLISHED_EFFECTIVENESS, PROVEN_EFFECTIVENESS)
    description = (
        f"{helpful} helpful and {len(marks) - helpful} harmful. Effectiveness {marks[-1].effectiveness:.2f}."
    )
    return picture(
        200,
        "Marks and effectiveness",
        description,
        *(_maturity_band(mark, *span) for mark, span in zip(marks, _spans(places), strict=True)),
        line(LEFT, 20, RIGHT, 20, "limit"),
        *(_mark(mark, x) for mark, x in zip(marks, places, strict=True)),
        *(_threshold(value, scale) for value in thresholds),
        _path(_stairs(places, [scale.y(mark.effectiveness) for mark in marks]), "line"),
        label(LEFT, 190, format_date(marks[0].at)),
        label(RIGHT, 190, format_date(marks[-1].at), "end"),
    )


def _spread(places: Sequence[float], gap: float) -> list[float]:
    """Return the places in order, at least a gap apart, within the width of the picture."""
    spread: list[float] = []
    for place in places:
        spread.append(max(place, spread[-1] + gap) if spread else place)
    limit = RIGHT - gap
    for index in range(len(spread) - 1, -1, -1):
        spread[index] = min(spread[index], limit)
        limit = spread[index] - gap
    return spread


def _spans(places: Sequence[float]) -> list[tuple[float, float]]:
    return list(zip(places, [*places[1:], RIGHT], strict=True))


def _maturity_band(mark: Mark, left: float, right: float) -> Markup:
    return element("rect", x=left, y=70, width=right - left, height=100, class_=f"maturity-{mark.maturity}")


def _mark(mark: Mark, x: float) -> Markup:
    is_helpful = mark.outcome == "helpful"
    y, height = (12, 8) if is_helpful else (20, 32)
    title = element("title", f"{mark.outcome} {format_date(mark.at)}")
    return element("rect", title, x=x, y=y, width=4, height=height, class_="good" if is_helpful else "bad")


def _stairs(places: Sequence[float], heights: Sequence[float]) -> list[tuple[float, float]]:
    return [
        point for (left, right), y in zip(_spans(places), heights, strict=True) for point in ((left, y), (right, y))
    ]


def spark(counts: Sequence[int], title: str, limit: int = 0) -> Markup:
    """Return one bar for each day, oldest left, and a line for the limit if there is one."""
    top = max(*counts, limit, 1)
    bars = [
        element("rect", x=12 * place, y=30 - height, width=9, height=height, class_="fill")
        for place, height in enumerate(max(28 * count / top, 1) for count in counts)
    ]
    height = 30 - 28 * limit / top
    limits = [line(0, height, 12 * len(counts), height, "bad-line")] if limit else []
    description = f"{sum(counts):,} in {len(counts)} days, at most {max(counts):,} in one."
    return picture(32, title, description, *bars, *limits, width=12 * len(counts), class_="spark")


def bands(values: Sequence[Band], title: str) -> Markup:
    """Return a column for each band; each is a link to its memories."""
    width = 60.0
    columns = []
    for place, band in enumerate(values):
        height = max(50 * band.share, 1)
        x = width * place
        bar = element("rect", x=x + 4, y=70 - height, width=width - 8, height=height, class_="fill")
        texts = label(x + width / 2, 64 - height, band.count, "middle") + label(
            x + width / 2, 84, band.label, "middle"
        )
        columns.append(link(band.href, f"{band.count} from {band.label}", bar + texts))
    return picture(90, title, "", *columns, width=width * len(values), role="group", class_="bands")


def parts(values: Sequence[tuple[str, float]], title: str) -> Markup:
    """Return a score as one bar of its parts; a whole score of 1 fills it."""
    left, rects = 0.0, [element("rect", width=120, height=10, class_="soft")]
    for place, (name, value) in enumerate(values):
        width = 120 * min(max(value, 0.0), 1.0)
        title_of_part = element("title", f"{name} {value:.2f}")
        rects.append(
            element("rect", title_of_part, x=left, y=0, width=width, height=10, class_=f"part-{place % 4 + 1}")
        )
        left += width
    description = ", ".join(f"{name} {value:.2f}" for name, value in values)
    return picture(10, title, description, *rects, width=120, class_="parts")


def mark_row(outcomes: Sequence[str], title: str) -> Markup:
    """Return the latest marks of a rule as a row, oldest left; helpful ones are up, harmful ones down."""
    rects = []
    for place, outcome in enumerate(outcomes):
        y, class_ = (0, "good") if outcome == "helpful" else (5, "bad")
        rects.append(element("rect", x=5 * place, y=y, width=4, height=5, class_=class_))
    return picture(10, title, "", *rects, width=5 * len(outcomes), class_="strip")


def picture(
    height: float, title: str, description: str, *children: Markup, width: float = WIDTH, role: str = "img",
    class_: str = "picture",
) -> Markup:  # fmt: skip
    """Return a picture with its title and description; `role` is group if it has links."""
    words = [element("title", title), *([element("desc", description)] if description else [])]
    view = f"0 0 {format_number(width)} {format_number(height)}"
    more = {} if role == "img" else {"aria_label": title}
    return element(
        "svg", *words, *children, viewBox=view, width=width, height=height, role=role, class_=class_, **more
    )


def link(href: str, title: str, content: Markup) -> Markup:
    """Return linked content."""
    return element("a", content, href=href, aria_label=one_line(title, 120))


def _path(points: Sequence[tuple[float, float]], class_: str) -> Markup:
    return element(
        "polyline", points=" ".join(f"{format_number(x)},{format_number(y)}" for x, y in points), class_=class_
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def dot(x: float, y: float, title: str) -> Markup:
    """Return a dot with a title."""
    return element("circle", element("title", one_line(title, 80)), cx=x, cy=y, r=3.5, class_="ink")


def label(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    """Return a text in the picture."""
    return element("text", text, x=x, y=y, text_anchor=anchor)


def element(name: str, *children: str, **attributes: object) -> Markup:
    """Return an element; a text that is no markup is escaped, and its hidden characters are made visible."""
    # Not Markup.format: it is written in Python and takes most of the time of a picture.
    given = "".join(
        f' {key.rstrip("_") if key.endswith("_") else key.replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
    )
    content = "".join(
        each if isinstance(each, Markup) else escape(escape_control_characters(each)) for each in children
    )
    return Markup(f"<{name}{given}>{content}</{name}>")  # noqa: S704 — every value is escaped above


def _value(value: object) -> str:
    return format_number(value) if isinstance(value, int | float) else escape_control_characters(str(value))


def format_number(value: float) -> str:
    """Return a number with one decimal place at most."""
    return f"{value:.1f}".removesuffix(".0")


def format_date(at: datetime | None) -> str:
    """Return a day, or never."""
    return "never" if at is None else f"{at:%-d %b %Y}"


def _on(at: datetime | None) -> str:
    return "never" if at is None else f"on {format_date(at)}"
