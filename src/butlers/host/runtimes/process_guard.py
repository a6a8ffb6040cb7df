"""Guard process that runs a program in its own process group and ends the group when the parent is gone.

`python process_guard.py FD FOLDER PROGRAM …`: FD is the reading end of a pipe. It reports its end when the parent
closes the other end or is killed. FOLDER is the session's folder; it is removed at the end because it may contain a
credential. Only the standard library is imported, to start quickly.
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
_EXIT_NOT_FOUND = 127
_EXIT_SIGNAL_BASE = 128


def main() -> int:
    """Run the program and return its exit code in the convention of a shell."""
    parent_pipe, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    try:
        return _run_guarded(parent_pipe, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_guarded(parent_pipe: int, command: list[str]) -> int:
    try:
        child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 — the configured program
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _EXIT_NOT_FOUND
    threading.Thread(target=_end_with_parent, args=(parent_pipe, child.pid), daemon=True).start()
    code = child.wait()
    # End the children that the program left running.
    _signal(child.pid, signal.SIGKILL)
    return code if code >= 0 else _EXIT_SIGNAL_BASE - code


def _end_with_parent(parent_pipe: int, group: int) -> None:
    os.read(parent_pipe, 1)
    _signal(group, signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
