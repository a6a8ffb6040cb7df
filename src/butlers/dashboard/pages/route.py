"""A route of the dashboard."""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from starlette.responses import Response

from butlers.dashboard.forms import MAX_SHORT_BYTES
from butlers.dashboard.page import Page


class PageRoute(NamedTuple):
    """A path with its handler. A handler of GET changes nothing."""

    path: str
    handler: Callable[[Page], Awaitable[Response]]
    method: Literal["GET", "POST"] = "GET"
    needs_login: bool = True
    needs_visit: bool = True
    """Whether an elevated admin must have given a reason to enter another tenant."""
    max_form_bytes: int = MAX_SHORT_BYTES
