"""The check of the outbox, for `butlers doctor` and `butlers connect --check`."""

from pathlib import Path

from butlers.contract import Check
from butlers.hooks.outbox import Outbox


def check_outbox(home: Path, butler: Path) -> Check:
    """Return whether events of hooks wait to be stored by the butler."""
    try:
        outbox = Outbox(home, butler)
        waiting, error = len(outbox.waiting()), outbox.last_error
    except OSError as problem:
        return Check(
            "outbox", "warn", f"{problem.filename}: {problem.strerror}", "Hooks can keep nothing until then."
        )
    if not waiting:
        return Check("outbox", "ok", "no event of a hook waits to be stored")
    found = f"{waiting} events of hooks wait to be stored" + (f": {error}" if error else "")
    return Check("outbox", "warn", found, f"Run `butlers hook deliver {butler}`.")
