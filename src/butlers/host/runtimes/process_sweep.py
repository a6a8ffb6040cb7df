"""Program that kills the processes of one session, found by the session's id in their environment.

`python process_sweep.py SESSION_ID` is for sessions without a working guard process: where the system has no
subreaper, and when the guard was killed.
"""

import os
import sys

import psutil

# A process that forks and exits between two looks at the process table is missed by one of them.
_EMPTY_PASSES = 3


def main() -> int:
    """Kill the session's processes until several passes in a row find none."""
    session, empty = sys.argv[1], 0
    while empty < _EMPTY_PASSES:
        empty = 0 if _kill_marked(session) else empty + 1
    return 0


def _kill_marked(session: str) -> int:
    """Kill this user's processes that carry the session's id; return their number."""
    # The guard that starts this program carries the id, too.
    spared, killed = {os.getpid(), os.getppid()}, 0
    for process in psutil.process_iter():
        try:
            if process.pid not in spared and _is_marked(process, session):
                process.kill()
                killed += 1
        except psutil.Error:
            continue
    return killed


def _is_marked(process: psutil.Process, session: str) -> bool:
    if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
        return False
    return bool(session) and process.environ().get("BUTLERS_SESSION_ID") == session


if __name__ == "__main__":
    sys.exit(main())
