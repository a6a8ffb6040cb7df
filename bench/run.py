"""Runs every bench, one after the other, and writes what they found to RESULTS.md."""

import json
import subprocess
import sys

from report import BENCH, RESULTS, Report, Table

BENCHES = ("startup", "embedding", "finding", "storing", "entities", "upkeep", "sessions", "load")
KEPT = (*BENCHES, "endurance")
"""`load.py --calls 100000` takes longer than all others together: it is run by hand, and its last result shown."""


def main() -> int:
    """Measure anew; the page is written only when every bench ran."""
    for name in BENCHES:
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, str(BENCH / f"{name}.py"), *sys.argv[1:]], check=True)
    page = BENCH / "RESULTS.md"
    page.write_text(rendered(), encoding="utf-8")
    print(f"written: {page.relative_to(BENCH.parent)}")
    return 0


def rendered() -> str:
    """The page, from the results as they are kept."""
    parts = ["# What was measured", "", "Made by `make bench`; [README.md](README.md) says how to read it.", ""]
    for name in (each for each in KEPT if (RESULTS / f"{each}.json").exists()):
        content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        machine = content.pop("machine")
        tables = [Table(**table) for table in content.pop("tables")]
        parts += [Report(**content, tables=tables).markdown(), *_conditions(machine), ""]
    return "\n".join(parts).rstrip() + "\n"


def _conditions(machine: dict[str, str]) -> list[str]:
    return ["### Measured on", "", *(f"- {name}: {value}" for name, value in machine.items())]


if __name__ == "__main__":
    sys.exit(main())
