"""Pictures in pages: each is there, and the screenshots are those that the script takes."""

import re
import runpy
import struct
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
IMAGES = ROOT / "docs" / "images"
MAX_BYTES = 130_000
PICTURE = re.compile(r"!\[[^\]]+\]\((?:\S*/)?(dashboard-[\w-]+\.png)\)")


def shown() -> set[str]:
    """The screenshots that pages show."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    return {name for page in pages for name in PICTURE.findall(page.read_text(encoding="utf-8"))}


def width_of(picture: bytes) -> int:
    """The width of a PNG file."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
    (width,) = struct.unpack(">I", picture[16:20])
    return int(width)


@pytest.mark.parametrize("name", sorted(shown()))
def test_a_screenshot_is_a_small_png_of_the_right_width(name):
    picture = (IMAGES / name).read_bytes()
    assert width_of(picture) == 1280
    assert len(picture) <= MAX_BYTES


def test_the_script_takes_the_screenshots_that_pages_show(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    taken = {f"dashboard-{shot.name}.png" for shot in runpy.run_path(str(SCRIPTS / "screenshots.py"))["SHOTS"]}
    assert taken == shown() == {path.name for path in IMAGES.glob("dashboard-*.png")}


def test_a_file_that_is_no_png_is_noticed():
    with pytest.raises(AssertionError):
        width_of(b"<svg></svg>")
