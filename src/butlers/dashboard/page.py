"""One request for a page: its caller, its links, and how it is rendered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID, uuid4

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from butlers.app import Butler
from butlers.caller import Caller
from butlers.dashboard import forms, rendering
from butlers.errors import NotFound
from butlers.host.server import Server
from butlers.modules.memory.domain.model import sanitize_text
from butlers.modules.memory.runtime import Memory

NOBODY = ""
"""The actor of a request before its caller is known; no key and no token names it."""


@dataclass(frozen=True, slots=True)
class Page:
    """A request with its caller. Handlers take it and return a response."""

    request: Request
    butler: Butler
    server: Server
    caller: Caller
    prefix: str
    """The beginning of every link: the base path and, in another tenant, its name."""
    max_form_bytes: int = forms.MAX_SHORT_BYTES

    @property
    def memory(self) -> Memory:
        """The butler's memory; raises `NotFound` if the module is disabled."""
        for module in self.butler.modules:
            if module.name == "memory":
                state: Memory = module.state
                return state
        raise NotFound("this butler has no memory", hint="Set `enabled = true` under [modules.memory].")

    def url(self, path: str, **query: object) -> str:
        """Return a link to a page. Values that are None or empty are left out; a list repeats its name."""
        given = {name: value for name, value in query.items() if value not in (None, "", [], ())}
        text = urlencode(given, doseq=True)
        return f"{self.prefix}{quote(path)}" + (f"?{text}" if text else "")

    def path_id(self, name: str = "id") -> UUID:
        """Return the id in the path; raise `NotFound` if it is none."""
        try:
            return UUID(str(self.request.path_params[name]))
        except ValueError:
            raise NotFound("there is no such page", hint="Ids come from the lists.") from None

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query, without surrounding blanks."""
        return sanitize_text(self.request.query_params.get(name, default)).strip()

    def home_url(self, path: str) -> str:
        """Return a link to a page in the caller's own tenant, or to that of another one by its name."""
        return self.server.config.dashboard.base_path + quote(path)

    async def form(self) -> FormData:
        """Return the fields of the submitted form. Raises `InvalidInput`."""
        return await forms.read_form(self.request, self.max_form_bytes)

    async def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return the page made from a template."""
        text = await rendering.render(self, template, values)
        return HTMLResponse(text, status_code=status)

    def render_bare(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return the page made from a template, without the counts of the tenant."""
        return HTMLResponse(rendering.render_without_counts(self, template, values), status_code=status)

    def redirect(self, path: str, **query: object) -> Response:
        """Return the answer to a form: see another page."""
        return RedirectResponse(self.url(path, **query), status_code=303)

    def redirect_to(self, path: str, parts: Sequence[str]) -> Response:
        """Return the answer to a form: see another page, with these parts of a query."""
        query = "&".join(part for part in parts if part)
        return RedirectResponse(self.url(path) + (f"?{query}" if query else ""), status_code=303)

    @property
    def current_address(self) -> str:
        """The path and query of this page, without prefix."""
        query = self.request.url.query
        return self.current_path + (f"?{query}" if query else "")

    @property
    def current_path(self) -> str:
        """The path of this page, without prefix and query."""
        return self.request.url.path

    @staticmethod
    def new_key() -> str:
        """Return an idempotency key for a form, so that submitting it twice acts once."""
        return str(uuid4())
