"""Reading of an HTTP response with a size limit."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2


async def read_json_object(response: "httpx2.Response", max_bytes: int) -> dict[str, Any] | None:
    """Return the JSON object of a streamed response; None if it is no object or longer than `max_bytes`."""
    body = bytearray()
    # Not decompressed: a short body could become a very long one.
    async for part in response.aiter_raw():
        body += part
        if len(body) > max_bytes:
            return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
