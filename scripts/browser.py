"""Finds a Chromium for the browser tests and the screenshots, and installs one if there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAC_PATHS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
APT = (
    ["apt-get", "update", "-qq"],
    ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
)
ADVICE = (
    "The pages are tested in a real browser, and none was found.\n"
    "Install one: `apt-get install --no-install-recommends chromium` on Debian and Ubuntu, any Chrome or Chromium\n"
    "elsewhere, or name one in BUTLERS_CHROMIUM."
)


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome, or None."""
    named = os.environ.get("BUTLERS_CHROMIUM")
    candidates = [named, *map(shutil.which, NAMES), *MAC_PATHS, _playwright_browser()]
    return next((path for path in candidates if path and Path(path).exists()), None)


def _playwright_browser() -> str | None:
    """Return the path where Playwright's own download is or would be."""
    from playwright.sync_api import sync_playwright

    try:
        with sync_playwright() as playwright:
            return str(playwright.chromium.executable_path)
    except Exception:  # noqa: BLE001 — inside a running event loop, or without its driver: there is no download then
        return None


def install_browser() -> None:
    """Install a browser: by apt-get as root, else by Playwright's download."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if all(subprocess.run(command, env=environment, check=False).returncode == 0 for command in APT):
            return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)


def main() -> None:
    """Make sure that there is a browser; exit with advice if there can't be one."""
    if find_browser() is None:
        install_browser()
    if find_browser() is None:
        sys.exit(ADVICE)


if __name__ == "__main__":
    main()
