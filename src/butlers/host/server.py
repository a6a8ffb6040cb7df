"""MCP server of one butler, and the HTTP application around it."""

import asyncio
import functools
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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

from butlers.caller import current_caller
from butlers.config import ButlerConfig
from butlers.contract import Tool
from butlers.db import Database
from butlers.errors import ConfigurationFault, Fault, Forbidden
from butlers.host import auth
from butlers.host.call_middleware import CallMiddleware, Identify, Observe
from butlers.host.connections import HEALTH_PATH, ConnectionLimits, limits_from_config
from butlers.host.disconnect import CancelOnDisconnect
from butlers.host.limits import ActiveRequests, BodyLimit, MessageLimit, RateLimit
from butlers.host.metrics import Gauges, JobStatuses, Metrics, RunJob, no_job_to_run, no_jobs
from butlers.host.origin_guard import HostAndOriginGuard
from butlers.host.shared_rate import SharedRateLimit

log = logging.getLogger("butlers.server")
_HEALTH_SECONDS = 0.8


@dataclass(frozen=True)
class BoundTool:
    """A tool and the state of its module."""

    tool: Tool
    state: Any

    @functools.cached_property
    def mcp_tool(self) -> McpTool:
        """The tool as the protocol's library serves it. Making one takes milliseconds, for its schema."""
        return _to_mcp_tool(self)


@dataclass(frozen=True, slots=True)
class Server:
    """A butler's MCP server with its parts."""

    mcp: FastMCP[Any]
    call_middleware: CallMiddleware
    config: ButlerConfig
    database: Database
    metrics: Metrics
    gauges: Mapping[str, Gauges]
    jobs: JobStatuses
    run_job: RunJob
    request_stop: Callable[[], None]
    """Called on every stop signal."""
    guard: AuthProvider | None
    identify: Identify
    rate: RateLimit
    active: ActiveRequests
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set on the first stop signal: responses without an end must end."""

    def stop(self) -> None:
        """End the responses that have no end of their own, and the scheduler's waiting."""
        self.stopping.set()
        self.request_stop()


def build_server(
    config: ButlerConfig,
    database: Database,
    tools: Sequence[BoundTool],
    gauges: Mapping[str, Gauges],
    metrics: Metrics,
    *,
    guard: AuthProvider | None,
    connections: ConnectionLimits | None = None,
    jobs: JobStatuses = no_jobs,
    run_job: RunJob = no_job_to_run,
    request_stop: Callable[[], None] = lambda: None,
    observe: Observe = lambda *_: None,
    shares_rate: bool = False,
) -> Server:
    """Return a server with these tools. Without a guard, the caller is the configured tenant's local user.

    Tenants share the given connections, or else the configured ones. With `shares_rate`, the rate of a tenant holds
    for all processes of the butler together.
    """
    identify = functools.partial(auth.identify_caller, config.auth, config.name, guard is not None)
    limits = config.limits
    rate = (
        SharedRateLimit(database, config.name, limits.calls_per_second, limits.burst)
        if shares_rate
        else RateLimit(limits.calls_per_second, limits.burst)
    )
    call_middleware = CallMiddleware(
        identify,
        rate,
        metrics,
        {bound.tool.name: bound.tool for bound in tools},
        config.limits.call_timeout_seconds,
        observe,
    )
    mcp: FastMCP[Any] = FastMCP(
        config.name,
        instructions=config.description or None,
        auth=guard,
        middleware=[call_middleware],
        mask_error_details=True,
        strict_input_validation=True,
    )
    _refuse_duplicate_names(tools)
    mcp_tools = [bound.mcp_tool for bound in tools]
    for tool in mcp_tools:
        mcp.add_tool(tool)
    # Without it, the protocol of 2026 lists all tools before every call to find the schema of one.
    mcp._mcp_server.get_tool_input_schema = {tool.name: tool.parameters for tool in mcp_tools}.get  # noqa: SLF001
    active = ActiveRequests((connections or limits_from_config(config)).max_connections)
    return Server(
        mcp=mcp,
        call_middleware=call_middleware,
        config=config,
        database=database,
        metrics=metrics,
        gauges=gauges,
        jobs=jobs,
        run_job=run_job,
        request_stop=request_stop,
        guard=guard,
        identify=identify,
        rate=rate,
        active=active,
    )


def _refuse_duplicate_names(tools: Sequence[BoundTool]) -> None:
    """Raise `ConfigurationFault` if two tools have the same name: the second would replace the first."""
    names = Counter(bound.tool.name for bound in tools)
    if duplicates := [name for name, count in names.items() if count > 1]:
        raise ConfigurationFault(
            f"more than one module has a tool {', '.join(duplicates)}", hint="Disable one of them in butler.toml."
        )


def _to_mcp_tool(bound: BoundTool) -> McpTool:
    tool = bound.tool
    annotations = ToolAnnotations(
        read_only_hint=tool.read_only,
        destructive_hint=tool.destructive,
        idempotent_hint=tool.idempotent or tool.read_only,
        open_world_hint=False,
    )
    return McpTool.from_function(_bind(bound), name=tool.name, annotations=annotations)


def _bind(bound: BoundTool) -> Any:
    """Return the tool's function with module state and caller filled in, and a signature without them."""
    function = bound.tool.function
    signature = inspect.signature(function)
    hidden = list(signature.parameters)[:2]
    hints = get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    async def call(**arguments: Any) -> Any:
        return await function(bound.state, current_caller.get(), **arguments)

    defaults = bound.tool.defaults
    visible = [
        parameter.replace(default=defaults.get(name, parameter.default))
        for name, parameter in signature.parameters.items()
        if name not in hidden
    ]
    call.__signature__ = signature.replace(parameters=visible)  # type: ignore[attr-defined]
    call.__annotations__ = {name: hint for name, hint in hints.items() if name not in hidden}
    del call.__wrapped__
    return call


def http_app(server: Server, pages: ASGIApp | None = None) -> Starlette:
    """Return the HTTP application: /mcp, /health, /metrics and, on every other path, the pages."""
    hosts, origins = [server.config.http.host, *server.config.http.allowed_hosts], server.config.http.allowed_origins
    limit = Middleware(MessageLimit, functools.partial(_tenant_of_request, server), server.rate, server.active)
    mcp_app = server.mcp.http_app(
        path="/mcp",
        host_origin_protection=True,
        allowed_hosts=hosts,
        allowed_origins=origins,
        stateless_http=True,
        json_response=True,
        middleware=[limit],
    )
    # Added inside as well: the MCP application answers 500 to any error that leaves it.
    mcp_app.add_middleware(FaultStatusMiddleware)
    return Starlette(
        routes=[
            Route(HEALTH_PATH, functools.partial(_health, server)),
            Route("/metrics", functools.partial(_metrics, server)),
            Mount("/", _PathDispatch(mcp_app, pages, server.config.dashboard.base_path) if pages else mcp_app),
        ],
        middleware=[
            Middleware(CancelOnDisconnect),
            Middleware(HostAndOriginGuard, hosts, origins),
            Middleware(BodyLimit, server.config.limits.max_body_bytes),
            Middleware(FaultStatusMiddleware),
        ],
        lifespan=mcp_app.lifespan,
    )


class _PathDispatch:
    """Sends the protocol's paths to the MCP application, also under the path of a proxy; all others to the pages."""

    def __init__(self, mcp_app: ASGIApp, pages: ASGIApp, base_path: str) -> None:
        self._mcp_app = mcp_app
        self._pages = pages
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(self._base_path)
        if path == "/mcp" or path.startswith(("/mcp/", "/.well-known/")):
            await self._mcp_app({**scope, "path": path, "raw_path": path.encode()}, receive, send)
        else:
            await self._pages(scope, receive, send)


def _tenant_of_request(server: Server) -> str | None:
    """Return the tenant of the current request, or None if it has no valid credential and gets 401."""
    try:
        return server.identify("").tenant
    except Forbidden:
        return None


class FaultStatusMiddleware:
    """Answers 503 to a fault outside a tool, such as a key that can't be checked without the database."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except Fault as fault:
            response = JSONResponse({"error": str(fault)}, status_code=503, headers={"Retry-After": "2"})
            await response(scope, receive, send)


async def _health(server: Server, _: Request) -> Response:
    """Answer 200 if the database takes writes, else 503 with the reason; a stopping butler is draining."""
    if server.stopping.is_set():
        return JSONResponse({"status": "draining"}, status_code=503)
    if fault := await server.database.find_fault(_HEALTH_SECONDS):
        status = getattr(fault, "health", "unavailable")
        return JSONResponse({"status": status, "reason": fault.message}, status_code=503)
    return JSONResponse({"status": "ready", "butler": server.config.name})


async def _metrics(server: Server, request: Request) -> Response:
    """Answer with the metrics; requires an admin's credential if calls require a credential."""
    if server.guard is not None:
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        token = await server.guard.verify_token(credential) if scheme.lower() == "bearer" else None
        if token is None:
            return PlainTextResponse(
                "a credential is required", status_code=401, headers={"WWW-Authenticate": "Bearer"}
            )
        if not auth.caller_from_token(token, butler=server.config.name, request_id="metrics").is_admin:
            return PlainTextResponse("the admin role is required", status_code=403)
    page = await server.metrics.render(server.database, server.gauges, server.jobs)
    return Response(page, media_type="text/plain; version=0.0.4")
