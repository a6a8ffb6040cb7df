"""Screenshots of the dashboard for the docs (`make docs`): docs/images/dashboard-*.png."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import asyncpg
import example_memory
from browser import ADVICE, find_browser
from fastmcp import Client
from playwright.async_api import Browser, async_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 1280
START_TIMEOUT_SECONDS = 120.0
CONFIGURATION = """\
[butler]
name = "{name}"
port = 0

[butler.runtime]
type = "command"
command = ["{python}", "{model}"]

[modules.memory]
enabled = true
toolset = "full"
"""


class Shot(NamedTuple):
    """A picture: its name, the page it shows, its height and its colours."""

    name: str
    path: str
    height: int
    colours: Literal["light", "dark"] = "light"
    click: str = ""
    """The button to press first."""


SHOTS = (
    Shot("overview", "/", 700),
    Shot("fact", "/facts/{fact}", 900),
    Shot("entity", "/entities/{entity}", 1180),
    Shot("rule-dark", "/rules/{rule}", 800, "dark"),
    Shot("run", "/consolidation/{run}", 900),
    Shot("review", "/review?of=fading", 800, click="Still true"),
)


async def take_all() -> None:
    """Start a butler, fill its memory and take the pictures."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["BUTLERS_HOME"] = home
        folder = write_butler(Path(home) / example_memory.BUTLER)
        async with run_butler(folder) as address:
            site = address.removesuffix("/mcp")
            await photograph(site, await fill(folder, site))


def write_butler(folder: Path) -> Path:
    """Write a butler whose sessions are answered by the example's model."""
    folder.mkdir()
    model = Path(example_memory.__file__)
    text = CONFIGURATION.format(name=example_memory.BUTLER, python=sys.executable, model=model)
    (folder / "butler.toml").write_text(text, encoding="utf-8")
    return folder


@asynccontextmanager
async def run_butler(folder: Path) -> AsyncIterator[str]:
    """Run the butler in its own process and yield its address."""
    command = (sys.executable, "-m", "butlers.cli", "run", str(folder))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            address = await read_address(process)
        yield address
    finally:
        process.terminate()
        await process.communicate()


async def read_address(process: asyncio.subprocess.Process) -> str:
    """Return the address of a butler once it serves."""
    said = b""
    while process.stderr and (line := await process.stderr.readline()):
        if line.startswith(b"ready: "):
            return line.decode().removeprefix("ready: ").strip()
        said += line
    raise RuntimeError(f"the butler did not start: {said.decode()}")


async def fill(folder: Path, site: str) -> Mapping[str, str]:
    """Fill the butler's memory and return the ids of the pages to show."""
    command = (sys.executable, "-m", "butlers.cli", "dsn", str(folder), "--admin")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    dsn, _ = await process.communicate()
    database = await asyncpg.connect(dsn.decode().strip())
    try:
        async with Client(f"{site}/mcp") as client:
            household = example_memory.Household(client, site, database)
            await household.live()
            return await household.shown()
    finally:
        await database.close()


async def photograph(site: str, ids: Mapping[str, str]) -> None:
    """Take every picture."""
    path = find_browser()
    if path is None:
        sys.exit(ADVICE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--disable-lcd-text"])
        for shot in SHOTS:
            target = IMAGES / f"dashboard-{shot.name}.png"
            await take(browser, site + shot.path.format(**ids), shot, target)
            print(f"written: {target}")
        await browser.close()


async def take(browser: Browser, address: str, shot: Shot, target: Path) -> None:
    """Take one picture."""
    context = await browser.new_context(
        viewport={"width": WIDTH, "height": shot.height},
        color_scheme=shot.colours,
        locale="en-GB",
        timezone_id="Europe/Lisbon",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    response = await page.goto(address)
    if response is None or response.status != 200:
        raise RuntimeError(f"{address} is not shown")
    if shot.click:
        await page.get_by_role("button", name=shot.click).click()
        await page.locator(".done").wait_for()
    await page.screenshot(path=target)
    await context.close()


if __name__ == "__main__":
    asyncio.run(take_all())
