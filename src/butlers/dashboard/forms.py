"""Submitted forms: their size limit, what they count towards the rate, and their fields."""

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from butlers.errors import InvalidInput
from butlers.modules.memory.domain.model import sanitize_text

MAX_SHORT_BYTES = 65_536
"""Limit of forms before a login, and of those with a reason or a name."""
MAX_BYTES = 1_048_576
"""Limit of the other forms: a correction may have a long content."""
MAX_FIELDS = 1_000
_BYTES_PER_CALL = 16_384
"""A body counts as one more call for each of these, as on /mcp."""
_ENCODING = "application/x-www-form-urlencoded"


class FormTooLarge(InvalidInput):
    """The form has more bytes than its page takes."""

    hint = "Send less text; the command of the same name takes more."

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"the form has more than {max_bytes:,} bytes")


def count_calls(request: Request, max_bytes: int) -> int:
    """Return how many calls a request counts as; a body of unknown length counts as the longest one."""
    if request.method != "POST":
        return 1
    return 1 + min(_announced_bytes(request, max_bytes), max_bytes) // _BYTES_PER_CALL


def _announced_bytes(request: Request, unknown: int) -> int:
    # The host has refused a length that is no number.
    return int(request.headers.get("content-length", unknown))


async def read_form(request: Request, max_bytes: int) -> FormData:
    """Return the fields of a form, read once. Raises `FormTooLarge`, and `InvalidInput` for too many fields."""
    if not hasattr(request.state, "form"):
        if _announced_bytes(request, 0) > max_bytes:
            raise FormTooLarge(max_bytes)
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > max_bytes:
                raise FormTooLarge(max_bytes)
        is_form = request.headers.get("content-type", "").partition(";")[0].strip().lower() == _ENCODING
        # A long one in a thread: it takes some tenths of a second, and other calls go on meanwhile.
        is_long = len(body) > MAX_SHORT_BYTES
        fields = await asyncio.to_thread(_parse, bytes(body)) if is_long else _parse(bytes(body))
        request.state.form = FormData(fields if is_form else [])
    form: FormData = request.state.form
    return form


def _parse(body: bytes) -> list[tuple[str, str | UploadFile]]:
    try:
        return [*parse_qsl(body.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_FIELDS)]
    except ValueError:
        raise InvalidInput(f"the form has more than {MAX_FIELDS:,} fields", hint="Select fewer rows.") from None


def form_text(form: Mapping[str, Any], name: str) -> str:
    """Return a field of a form without surrounding blanks; browsers send the end of a line as two characters."""
    return sanitize_text(str(form.get(name, ""))).replace("\r\n", "\n").strip()
