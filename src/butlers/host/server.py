"""The MCP server of one butler: its tools, over HTTP and over stdio."""

import functools
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from fastmcp.tools import Tool as McpTool
from mcp_types import ToolAnnotations
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from butlers.caller import Caller, current_caller
from butlers.config import ButlerConfig
from butlers.contract import Tool
from butlers.db import Database
from butlers.errors import ConfigurationFault, Fault
from butlers.host import auth
from butlers.host.call_middleware import CallMiddleware, Observe, ignore_call
from butlers.host.disconnect import CancelOnDisconnect
from butlers.host.limits import BodyLimit, RateLimit
from butlers.host.metrics import Gauges, JobStatuses, Metrics, no_jobs
from butlers.host.origin_guard import HostAndOriginGuard

log = logging.getLogger("butlers.server")


@dataclass(frozen=True, slots=True)
class BoundTool:
    """A tool together with the state of the module it belongs to."""

    tool: Tool
    state: Any


@dataclass(frozen=True, slots=True)
class Server:
    """One butler's MCP server and what it counts."""

    mcp: FastMCP[Any]
    door: CallMiddleware
    config: ButlerConfig
    database: Database
    metrics: Metrics
    gauges: Mapping[str, Gauges]
    jobs: JobStatuses
    told_to_stop: Callable[[], None]
    """What hears every signal to stop, beside whatever serves."""
    guard: AuthProvider | None


def build_server(
    config: ButlerConfig,
    database: Database,
    offers: Sequence[BoundTool],
    gauges: Mapping[str, Gauges],
    metrics: Metrics,
    *,
    guard: AuthProvider | None,
    jobs: JobStatuses = no_jobs,
    told_to_stop: Callable[[], None] = lambda: None,
    observe: Observe = ignore_call,
) -> Server:
    """A server with these tools; without a guard the caller is whoever started the process."""

    def identify(request_id: str) -> Caller:
        return auth.identify_caller(config.auth, butler=config.name, guarded=guard is not None, request_id=request_id)

    door = CallMiddleware(
        identify,
        RateLimit(config.limits.calls_per_second, config.limits.burst),
        metrics,
        {offer.tool.name: offer.tool for offer in offers},
        config.limits.call_timeout_seconds,
        observe,
    )
    mcp: FastMCP[Any] = FastMCP(
        config.name,
        instructions=config.description or None,
        auth=guard,
        middleware=[door],
        mask_error_details=True,
        strict_input_validation=True,
    )
    _refuse_duplicate_names(offers)
    for offer in offers:
        mcp.add_tool(_to_mcp_tool(offer))
    return Server(mcp, door, config, database, metrics, gauges, jobs, told_to_stop, guard)


def _refuse_duplicate_names(offers: Sequence[BoundTool]) -> None:
    """Two tools of one name: the second would answer in place of the first."""
    names = Counter(offer.tool.name for offer in offers)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ConfigurationFault(
            f"more than one module has a tool {', '.join(twice)}", hint="Disable one of them in butler.toml."
        )


def _to_mcp_tool(offer: BoundTool) -> McpTool:
    tool = offer.tool
    return McpTool.from_function(
        _bind(offer),
        name=tool.name,
        annotations=ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent or tool.read_only,
            open_world_hint=False,
        ),
    )


def _bind(offer: BoundTool) -> Any:
    """The tool's function with module state and caller filled in, and its signature without them."""
    function = offer.tool.function
    signature = inspect.signature(function)
    hidden = list(signature.parameters)[:2]
    hints = get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    async def call(**arguments: Any) -> Any:
        return await function(offer.state, current_caller.get(), **arguments)

    shown = [parameter for name, parameter in signature.parameters.items() if name not in hidden]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    call.__annotations__ = {name: hint for name, hint in hints.items() if name not in hidden}
    del call.__wrapped__
    return call


def http_app(server: Server) -> Starlette:
    """Everything the butler serves over HTTP."""
    config = server.config
    mcp_app = server.mcp.http_app(
        path="/mcp",
        host_origin_protection=True,
        allowed_hosts=[config.http.host, *config.http.allowed_hosts],
        allowed_origins=list(config.http.allowed_origins),
        stateless_http=True,
        json_response=True,
    )
    # Inside as well: the protocol's own application answers 500 to whatever leaves it.
    mcp_app.add_middleware(FaultStatusMiddleware)
    return Starlette(
        routes=[
            Route("/health", functools.partial(_health, server)),
            Route("/metrics", functools.partial(_metrics, server)),
            Mount("/", mcp_app),
        ],
        middleware=[
            Middleware(CancelOnDisconnect),
            Middleware(
                HostAndOriginGuard,
                [config.http.host, *config.http.allowed_hosts],
                config.http.allowed_origins,
            ),
            Middleware(BodyLimit, config.limits.max_body_bytes),
            Middleware(FaultStatusMiddleware),
        ],
        lifespan=mcp_app.lifespan,
    )


class FaultStatusMiddleware:
    """A fault before any tool was reached (no database to check a key with) is 503, not a broken connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Fault as fault:
            answer = JSONResponse({"error": str(fault)}, status_code=503, headers={"Retry-After": "2"})
            await answer(scope, receive, send)


async def _health(server: Server, _: Request) -> Response:
    """200 when calls can be served, 503 with the reason when they can't."""
    try:
        await server.database.ping()
    except Fault as fault:
        return JSONResponse({"status": "unavailable", "reason": fault.message}, status_code=503)
    return JSONResponse({"status": "ready", "butler": server.config.name})


async def _metrics(server: Server, request: Request) -> Response:
    """The scraper's page; where callers need a credential, an admin's is needed here."""
    if server.guard is not None:
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        token = await server.guard.verify_token(credential) if scheme.lower() == "bearer" else None
        if token is None:
            return PlainTextResponse(
                "a credential is needed", status_code=401, headers={"WWW-Authenticate": "Bearer"}
            )
        if not auth.caller_from_token(token, butler=server.config.name, request_id="metrics").is_admin:
            return PlainTextResponse("the admin role is needed", status_code=403)
    page = await server.metrics.render(server.database, server.gauges, server.jobs)
    return Response(page, media_type="text/plain; version=0.0.4")
