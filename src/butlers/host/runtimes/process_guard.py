"""Guard process that runs a session's program, and ends everything the program started.

`python process_guard.py FD FOLDER PROGRAM …`: FD is the reading end of a pipe. It reports its end when the parent
closes the other end or is killed. FOLDER is the session's folder; it is removed at the end because it may contain a
credential. Only the standard library is imported, to start quickly.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_GRACE_SECONDS = 2.0
_SWEEP_TIMEOUT_SECONDS = 10.0
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.05
_EXIT_NOT_FOUND = 127
_EXIT_SIGNAL_BASE = 128
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP = Path(__file__).with_name("process_sweep.py")


def main() -> int:
    """Run the program and return its exit code in the convention of a shell."""
    parent_pipe, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    try:
        return _run_guarded(parent_pipe, command)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run_guarded(parent_pipe: int, command: list[str]) -> int:
    is_subreaper = _become_subreaper()
    try:
        child = subprocess.Popen(command, start_new_session=True)  # noqa: S603 — the configured program
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _EXIT_NOT_FOUND
    threading.Thread(target=_end_with_parent, args=(parent_pipe, child.pid), daemon=True).start()
    code = child.returncode = _wait_for(child.pid)
    _kill_group(child.pid)
    if is_subreaper:
        _kill_descendants()
    else:
        _kill_marked_processes()
    return code if code >= 0 else _EXIT_SIGNAL_BASE - code


def _become_subreaper() -> bool:
    """Become the parent of all descendants whose own parent ends; return False where only init can."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def _end_with_parent(parent_pipe: int, group: int) -> None:
    os.read(parent_pipe, 1)
    _kill_group(group, signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    _kill_group(group)


def _wait_for(program: int) -> int:
    """Return the exit code of the program; reap the orphans that end before it."""
    while True:
        pid, status = os.wait()
        if pid == program:
            return os.waitstatus_to_exitcode(status)


def _kill_descendants() -> None:
    """Kill and reap children until none is left: the children of a killed process become ours.

    Only children are signalled: their pids can't belong to another process before they are reaped.
    """
    pause = _MIN_PAUSE_SECONDS
    while _reap():
        killed = [_kill_with_group(pid, group) for pid, group in _children()]
        if killed and not any(killed):
            return
        time.sleep(pause)
        # A process in an uninterruptible call may take long to end.
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def _kill_with_group(pid: int, group: int) -> bool:
    """Kill a child and its process group; return False if another user runs it.

    The kernel signals a group in one step, so a process that keeps forking can't escape. The group is never ours: the
    program started its own session.
    """
    _kill_group(group)
    try:
        os.kill(pid, signal.SIGKILL)
    except PermissionError:
        return False
    return True


def _reap() -> bool:
    """Reap the children that have ended; return whether others are left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _children() -> Iterator[tuple[int, int]]:
    """Yield pid and process group of each child. The newest come first, before they can fork again and exit."""
    me = os.getpid()
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    for pid in sorted(pids, reverse=True):
        with contextlib.suppress(OSError):
            # The fields after the program's name, which may contain spaces and brackets: state, parent, group.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[1]) == me:
                yield pid, int(fields[2])


def _kill_marked_processes() -> None:
    """Kill the processes that have this session's id in their environment."""
    command = [sys.executable, "-I", str(_SWEEP), os.environ.get("BUTLERS_SESSION_ID", "")]
    # The session's answer waits for this.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=_SWEEP_TIMEOUT_SECONDS
        )


def _kill_group(group: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main())
