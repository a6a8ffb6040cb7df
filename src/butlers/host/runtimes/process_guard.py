"""Runs a program in a process group of its own and ends all of it when whoever asked for it has gone.

`python warden.py FD FOLDER PROGRAM …`: FD is the reading end of a pipe that nobody writes to. It reads as ended when
its other end is closed, on purpose or because that process was killed. FOLDER is the session's, and is removed at the
end: it may hold a credential. Only the standard library is needed, to start quickly.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

_GRACE_SECONDS = 2.0
_CANNOT_RUN = 127
_KILLED = 128


def main() -> int:
    """The program's exit code, as a shell would say it."""
    lifeline, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    try:
        return _run_guarded(lifeline, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_guarded(lifeline: int, command: list[str]) -> int:
    try:
        child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 — the configured program
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _CANNOT_RUN
    threading.Thread(target=_watch, args=(lifeline, child.pid), daemon=True).start()
    code = child.wait()
    # What it started and left behind ends with it.
    _signal(child.pid, signal.SIGKILL)
    return code if code >= 0 else _KILLED - code


def _watch(lifeline: int, group: int) -> None:
    os.read(lifeline, 1)
    _signal(group, signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
