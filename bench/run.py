"""Runner for all benches: measures one after the other, draws the plots and writes RESULTS.md."""

import argparse
import subprocess
import sys
import time

from plots import draw
from report import BENCH, render_page

BENCHES = (
    "limits",
    "peers",
    "first_minute",
    "growth",
    "quality",
    "matching",
    "finding",
    "writes",
    "imports",
    "entities",
    "embedding",
    "maintenance",
    "sessions",
    "load",
    "dashboard",
    "startup",
)
"""`maintenance.py --facts 1000000` and `load.py --calls 100000` take as long as all of these together. They are run
by hand; the page shows their last results."""


def main(names: list[str]) -> int:
    """Measure the named benches; write the page from the stored results of all of them."""
    started = time.perf_counter()
    for number, name in enumerate(names, 1):
        print(f"== {name} ({number} of {len(names)}, {time.perf_counter() - started:.0f} s so far)", flush=True)
        subprocess.run([sys.executable, str(BENCH / f"{name}.py")], check=True)
    draw()
    page = BENCH / "RESULTS.md"
    page.write_text(render_page(), encoding="utf-8")
    print(f"written: {page.relative_to(BENCH.parent)}, after {(time.perf_counter() - started) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], help="The benches to run; all by default.")
    parser.add_argument("--page-only", action="store_true", help="Measure nothing; only write the page again.")
    options = parser.parse_args()
    sys.exit(main([] if options.page_only else list(options.names or BENCHES)))
