"""Links between pages: every link has a target, and every page can be reached."""

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
ENTRANCES = ("README.md", "docs/index.md")
FOR_AGENTS = ("src/butlers/templates", "package/templates", "plugins/", "extensions/")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")


def pages() -> list[str]:
    """Every page of the repository, committed or not, without those of a butler made in the checkout."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    found = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return sorted(page for page in found if page and (ROOT / page).exists() and not of_new_butler(ROOT / page))


def of_new_butler(page: Path) -> bool:
    """Whether the page belongs to a butler made in the checkout, as the README shows."""
    return (page.parent / "butler.toml").exists() and page.parent.parent == ROOT


def prose(page: str) -> str:
    """The page without its code blocks."""
    return FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))


def links(page: str) -> list[str]:
    """The targets of the page's links, without those to other sites."""
    without_code = CODE.sub("code", prose(page))
    return [link for link in LINK.findall(without_code) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings."""
    headings = HEADING.findall(prose(str(page.relative_to(ROOT))))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def target(page: str, link: str) -> tuple[Path, str]:
    """The file and the anchor of a link."""
    path, _, anchor = unquote(link).partition("#")
    return ((ROOT / page).parent / path).resolve() if path else ROOT / page, anchor


def broken(page: str) -> list[str]:
    """The links of a page without a target."""
    missing = []
    for link in links(page):
        file, anchor = target(page, link)
        inside = file.exists() and file.is_relative_to(ROOT)
        if not inside or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            missing.append(link)
    return missing


def reachable() -> set[str]:
    """The pages that links from the entrances lead to."""
    seen: set[str] = set()
    waiting = list(ENTRANCES)
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        files = (target(page, link)[0] for link in links(page))
        waiting += [str(file.relative_to(ROOT)) for file in files if file.suffix == ".md" and file.exists()]
    return seen


@pytest.mark.parametrize("page", pages())
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    assert broken(page) == []


def test_every_page_can_be_reached_from_the_readme_or_the_index() -> None:
    assert [page for page in pages() if page not in reachable() and not page.startswith(FOR_AGENTS)] == []


def test_the_pages_are_found_at_all() -> None:
    assert {*ENTRANCES, "docs/reference/config.md"} <= set(pages())


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A heading, here\n")
    (tmp_path / "page.md").write_text(
        "[a](there.md) [b](there.md#a-heading-here) [c](gone.md) [d](there.md#gone) [e](https://example.com)"
        " `[f](gone.md)`\n```\n[g](gone.md)\n```\n![h](gone.svg)\n"
    )
    assert broken("page.md") == ["gone.md", "there.md#gone", "gone.svg"]
