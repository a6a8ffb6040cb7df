"""Checks that list pages share: the rows of a page, and walking through all pages of a list."""

import re

from dashboard.conftest import Site


async def ids_on(site: Site, path: str, kind: str = "facts") -> list[str]:
    """Return the ids of the rows of a list page, in order."""
    response = await site.get(path)
    assert response.status_code == 200, response.text
    return re.findall(rf'data-href="/{kind}/([0-9a-f-]{{36}})"', response.text)


def link_to(text: str, rel: str) -> str | None:
    """Return the path of the older (`next`) or newer (`prev`) rows on a page."""
    found = re.search(rf'<a href="([^"]+)" rel="{rel}"', text)
    return found.group(1).replace("&amp;", "&") if found else None


async def walk(site: Site, path: str, rel: str, kind: str = "facts") -> list[list[str]]:
    """Return the ids on each page from a page on, following its links in one direction."""
    pages: list[list[str]] = []
    following: str | None = path
    while following:
        pages.append(await ids_on(site, following, kind))
        following = link_to((await site.get(following)).text, rel)
        assert len(pages) < 50
    return pages


async def last_page(site: Site, path: str) -> str:
    """Return the path of the last page of a list."""
    while following := link_to((await site.get(path)).text, "next"):
        path = following
    return path
