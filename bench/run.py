"""Runs every bench, one after the other, and writes what they found to RESULTS.md, with pictures."""

import argparse
import json
import subprocess
import sys
import time

from plots import draw
from report import BENCH, RESULTS, Report, Table

BENCHES = (
    "limits",
    "peers",
    "fresh",
    "growth",
    "quality",
    "finding",
    "storing",
    "entities",
    "embedding",
    "upkeep",
    "sessions",
    "load",
    "startup",
)
KEPT = (*BENCHES, "million", "endurance")
"""`upkeep.py --facts 1000000` and `load.py --calls 100000` take as long as all others together: they are run by hand,
and their last results shown."""


def main(names: list[str]) -> int:
    """Measure anew; the page is written from what is known of every bench."""
    began = time.perf_counter()
    for number, name in enumerate(names, 1):
        print(f"== {name} ({number} of {len(names)}, {time.perf_counter() - began:.0f} s so far)", flush=True)
        subprocess.run([sys.executable, str(BENCH / f"{name}.py")], check=True)
    draw()
    page = BENCH / "RESULTS.md"
    page.write_text(rendered(), encoding="utf-8")
    print(f"written: {page.relative_to(BENCH.parent)}, after {(time.perf_counter() - began) / 60:.1f} minutes")
    return 0


def rendered() -> str:
    """The page, from the results as they are kept; improvements by hand come from `improved.md`."""
    parts = ["# What was measured", "", "Made by `make bench`; [README.md](README.md) says how to read it.", ""]
    parts += [BENCH.joinpath("improved.md").read_text(encoding="utf-8")]
    conditions: dict[str, list[str]] = {}
    for name in KEPT:
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        machine = content.pop("machine")
        load = machine.pop("load")
        conditions.setdefault("; ".join(f"{key}: {value}" for key, value in machine.items()), []).append(
            f"{content['title']} (load {load.split()[0]})"
        )
        tables = [Table(**table) for table in content.pop("tables")]
        parts += [Report(**content, tables=tables).markdown(), ""]
    parts += ["## Measured on", "", "In brackets the load at the end of each; 1 or so is the bench itself.", ""]
    parts += [f"- {where}: {', '.join(titles)}" for where, titles in conditions.items()]
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", choices=[*BENCHES, []], help="Some of them; all if none is named.")
    arguments.add_argument("--page-only", action="store_true", help="Measure nothing: only write the page anew.")
    told = arguments.parse_args()
    sys.exit(main([] if told.page_only else list(told.names or BENCHES)))
