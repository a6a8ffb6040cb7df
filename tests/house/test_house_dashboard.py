"""Rules for the dashboard: text is escaped everywhere, nothing is inline, style sheet and script stay small."""

import re
from pathlib import Path

import pytest

from .files import texts

DASHBOARD = Path("src/butlers/dashboard")
MAX_STYLE_BYTES, MAX_SCRIPT_LINES = 12_288, 120
FORBIDDEN = {
    "text that is not escaped": re.compile(r"\|\s*safe\b|\{%-?\s*autoescape|\bsrcdoc\s*="),
    "a style attribute": re.compile(r"<[^>]*\sstyle\s*="),
    "an inline handler": re.compile(r"<[^>]*\son[a-z]+\s*="),
    "an inline script": re.compile(r"<script(?![^>]*\ssrc=)[^>]*>"),
    "an inline style sheet": re.compile(r"<style\b"),
    "an attribute without quotes": re.compile(r"<[a-z][^>]*\s[a-z-]+=\{\{"),
    "a link that is not made by url()": re.compile(r"(?:href|action|src)=\"(?!\{\{|#)"),
}


def faults(text: str) -> list[str]:
    return [fault for fault, pattern in FORBIDDEN.items() if pattern.search(text)]


def templates() -> dict[Path, str]:
    return {path: text for path, text in texts().items() if path.is_relative_to(DASHBOARD / "templates")}


def test_templates_escape_everything_and_have_nothing_inline():
    assert DASHBOARD / "templates" / "base.html" in templates()
    assert {str(path): found for path, text in templates().items() if (found := faults(text))} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{{ content|safe }}", "text that is not escaped"),
        ("{% autoescape false %}", "text that is not escaped"),
        ('<p class="x" style="color: red">', "a style attribute"),
        ('<img src="{{ url }}" onerror="x()">', "an inline handler"),
        ("<script>run()</script>", "an inline script"),
        ("<style>p {}</style>", "an inline style sheet"),
        ("<p title={{ content }}>", "an attribute without quotes"),
        ('<a href="/facts">', "a link that is not made by url()"),
    ],
)
def test_a_template_that_breaks_a_rule_is_found(text, fault):
    assert faults(text) == [fault]
    assert (
        faults('<script type="module" src="{{ shell.script }}"></script><p class="{{ state }}">{{ text }}</p>') == []
    )


def test_only_pictures_are_markup():
    marked = {path for path, text in texts().items() if path.is_relative_to(DASHBOARD) and "Markup(" in text}
    assert {path.name for path in marked} <= {"svg.py", "svg_graph.py"}
    assert marked


def test_the_style_sheet_and_the_script_are_small():
    found = {path.name: text for path, text in texts().items() if path.is_relative_to(DASHBOARD / "static")}
    assert len(found["app.css"].encode()) <= MAX_STYLE_BYTES
    assert len(found["app.js"].splitlines()) <= MAX_SCRIPT_LINES
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|localStorage", found["app.js"]
    )
    assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", found["app.css"])
