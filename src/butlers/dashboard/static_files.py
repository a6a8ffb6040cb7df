"""Style sheet and script, served under the digest of their content so that a browser keeps them for good."""

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "app.css": "text/css; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}


class StaticFile(NamedTuple):
    """A file and the first digits of its SHA-256."""

    content: bytes
    digest: str


@cache
def load(name: str) -> StaticFile:
    """Return a static file."""
    content = (resources.files(__package__) / "static" / name).read_bytes()
    return StaticFile(content, hashlib.sha256(content).hexdigest()[:12])


async def serve(request: Request) -> Response:
    """Answer with a static file; 404 for another name or digest."""
    name = request.path_params["name"]
    if name not in _TYPES or request.path_params["digest"] != load(name).digest:
        raise HTTPException(404)
    return Response(load(name).content, media_type=_TYPES[name], headers=_FOREVER)
