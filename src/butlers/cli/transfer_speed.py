"""The speed of an export or an import."""

import time
from typing import Any

_MIN_SECONDS = 0.001


def transfer_speed(memories: int, started: float) -> dict[str, Any]:
    """Return the number of memories, the seconds since `started` and the memories a second."""
    seconds = max(time.monotonic() - started, _MIN_SECONDS)
    return {"memories": memories, "seconds": round(seconds, 1), "memories_per_second": round(memories / seconds, 1)}
