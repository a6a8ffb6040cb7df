"""Graphs as SVG: the versions of a fact, and the facts and episodes around an entity."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup

from butlers.dashboard.rendering import one_line
from butlers.dashboard.svg import (
    LEFT,
    RIGHT,
    WIDTH,
    dot,
    element,
    format_date,
    format_number,
    label,
    line,
    link,
    picture,
)

MAX_NODES, MAX_CHAIN = 40, 8


class Node(NamedTuple):
    """A linked label, and the linked labels that hang on it."""

    label: str
    href: str
    children: Sequence["Node"] = ()


def chain(nodes: Sequence[tuple[Node, datetime]], current: int) -> Markup:
    """Return facts that superseded each other as a timeline, oldest left; each is a link."""
    gap = (RIGHT - LEFT) / max(len(nodes) - 1, 1)
    places = [LEFT + gap * place for place in range(len(nodes))] if len(nodes) > 1 else [WIDTH / 2]
    items = []
    for place, (x, (node, at)) in enumerate(zip(places, nodes, strict=True)):
        anchor = "start" if place == 0 else "end" if place == len(nodes) - 1 else "middle"
        circle = element("circle", cx=x, cy=14, r=6, class_="fill" if place == current else "soft")
        day = label(x - 6 * (anchor == "start") + 6 * (anchor == "end"), 36, format_date(at), anchor)
        items.append(link(node.href, f"{format_date(at)}: {node.label}", circle + day))
    axis = line(places[0], 14, places[-1], 14, "limit")
    return picture(44, "Versions of this fact", f"{len(nodes)} versions, oldest left.", axis, *items, role="group")


def ego(center: str, nodes: Sequence[Node], more: Node | None = None) -> Markup:
    """Return a graph: the centre, its nodes around it, and their children outside; at most 40, each a link."""
    shown = [*_limited(nodes, MAX_NODES - 1 - bool(more)), *([more] if more else [])]
    x, y, turn = 360.0, 300.0, 2 * math.pi / max(len(shown), 1)
    drawn: list[Markup] = []
    for place, node in enumerate(shown):
        angle = turn * place - math.pi / 2
        near, far = (
            _at(x, y, 100, angle),
            [
                _at(x, y, 285, angle + turn * 0.8 * ((child + 1) / (len(node.children) + 1) - 0.5))
                for child in range(len(node.children))
            ],
        )
        drawn += [line(x, y, *near, "limit"), *(line(*near, *each, "limit") for each in far)]
        drawn.append(_radial(node, near, angle, 26))
        drawn += [
            link(each.href, each.label, dot(*spot, each.label)) for each, spot in zip(node.children, far, strict=True)
        ]
    middle = element("circle", cx=x, cy=y, r=9, class_="fill") + label(x, y + 26, one_line(center, 30), "middle")
    left_out = f" {more.label}." if more else ""
    description = f"{len(shown) - bool(more)} facts around {one_line(center, 60)}.{left_out}"
    return picture(600, "Facts and episodes", description, *drawn, middle, width=720, role="group", class_="ego")


def _limited(nodes: Sequence[Node], room: int) -> list[Node]:
    """Return the first nodes, and then as many of their children as there is room for."""
    kept = list(nodes[:room])
    room -= len(kept)
    limited = []
    for node in kept:
        children = node.children[: max(room, 0)]
        room -= len(children)
        limited.append(node._replace(children=children))
    return limited


def _at(x: float, y: float, radius: float, angle: float) -> tuple[float, float]:
    return x + radius * math.cos(angle), y + radius * math.sin(angle)


def _radial(node: Node, spot: tuple[float, float], angle: float, characters: int) -> Markup:
    is_left = math.cos(angle) < -1e-9
    turned = math.degrees(angle) + (180 if is_left else 0)
    offset, anchor = (-9, "end") if is_left else (9, "start")
    transform = f"translate({format_number(spot[0])} {format_number(spot[1])}) rotate({format_number(turned)})"
    text = label(offset, 4, one_line(node.label, characters), anchor)
    return link(node.href, node.label, element("g", dot(0, 0, node.label), text, transform=transform))
