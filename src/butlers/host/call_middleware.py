"""The one door every tool call goes through: who calls, in which tenant, within which limits, with what outcome."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pydantic
from fastmcp.exceptions import FastMCPError, NotFoundError, ToolError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import ToolResult
from mcp_types import CallToolRequestParams

from butlers.caller import Caller, current_caller, validate_tenant
from butlers.contract import RowCount, Tool, current_row_count
from butlers.db import as_fault
from butlers.errors import Fault, InvalidInput, NotFound, TimedOut
from butlers.host.limits import RateLimit
from butlers.host.metrics import Metrics

log = logging.getLogger("butlers.calls")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

Identify = Callable[[str], Caller]
Observe = Callable[[Caller, str], None]
Call = MiddlewareContext[CallToolRequestParams]


def ignore_call(caller: Caller, tool: str) -> None:
    """Of a server that nobody watches."""
    del caller, tool


class CallMiddleware(Middleware):
    """Identifies the caller once, judges a tenant argument once, and turns whatever happens into one answer."""

    def __init__(
        self,
        identify: Identify,
        limit: RateLimit,
        metrics: Metrics,
        tools: Mapping[str, Tool],
        seconds: float,
        observe: Observe = ignore_call,
    ) -> None:
        self._observe = observe
        self._identify = identify
        self._limit = limit
        self._metrics = metrics
        self._tools = tools
        self._seconds = seconds
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Return when no call is under way."""
        await self._idle.wait()

    async def on_call_tool(self, context: Call, call_next: CallNext[CallToolRequestParams, ToolResult]) -> ToolResult:
        """Serve one call."""
        started, request_id, tally = time.perf_counter(), _request_id(), RowCount()
        # Names an agent made up must not become labels: metrics are for ever.
        name = context.message.name if context.message.name in self._tools else "unknown"
        outcome, who = "ok", None
        self._count(+1)
        try:
            who, inside = self._admit(context, request_id)
            self._observe(who, name)
            return await self._serve(who, tally, inside, call_next)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:  # noqa: BLE001 — whatever it is, the caller gets one line and the log the rest
            fault = _fault_for_caller(error, name, request_id)
            outcome = fault.code if fault else "internal"
            raise ToolError(str(fault) if fault else _internal_error_text(request_id)) from None
        finally:
            self._count(-1)
            self._record(name, outcome, time.perf_counter() - started, who, request_id, tally)

    def _count(self, change: int) -> None:
        self._under_way += change
        (self._idle.clear if self._under_way else self._idle.set)()

    def _admit(self, context: Call, request_id: str) -> tuple[Caller, Call]:
        """The caller, inside the tenant it named if it may, and the call without that argument."""
        caller = self._identify(request_id)
        self._limit.take(caller.tenant)
        arguments = self._named(context.message)
        named = arguments.pop("tenant_id", None)
        if named is not None and named != "":
            caller = caller.within(validate_tenant(named))
        message = context.message.model_copy(update={"arguments": arguments})
        return caller, replace(context, message=message)

    def _named(self, message: CallToolRequestParams) -> dict[str, Any]:
        """The arguments under the names the tool's schema has for them."""
        arguments = dict(message.arguments or {})
        tool = self._tools.get(message.name)
        for alias, name in tool.aliases.items() if tool else ():
            if alias in arguments and name not in arguments:
                arguments[name] = arguments.pop(alias)
        return arguments

    async def _serve(
        self,
        caller: Caller,
        tally: RowCount,
        context: Call,
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        caller_token, tally_token = current_caller.set(caller), current_row_count.set(tally)
        try:
            async with asyncio.timeout(self._seconds) as limit:
                return await call_next(context)
        except TimeoutError:
            if limit.expired():
                raise TimedOut(f"the call took longer than {self._seconds:g} s") from None
            raise
        finally:
            current_caller.reset(caller_token)
            current_row_count.reset(tally_token)

    def _record(
        self, name: str, outcome: str, seconds: float, caller: Caller | None, request_id: str, tally: RowCount
    ) -> None:
        self._metrics.calls.labels(name, outcome).inc()
        self._metrics.seconds.labels(name).observe(seconds)
        if tally.asked:
            self._metrics.rows_asked.labels(name).inc(tally.asked)
            self._metrics.rows_returned.labels(name).inc(tally.returned)
        log.info(
            "call",
            extra={
                "tool": name,
                "outcome": outcome,
                "ms": round(seconds * 1000, 1),
                "tenant": caller and caller.tenant,
                "actor": caller and caller.actor,
                "elevated_from": caller and caller.home_tenant,
                "request_id": request_id,
            },
        )


def _request_id() -> str:
    """The id the client gave its request, when it is one, or a new one."""
    try:
        given = get_http_request().headers.get("x-request-id", "")
    except RuntimeError:
        given = ""
    return given if _REQUEST_ID.fullmatch(given) else str(uuid4())


def _fault_for_caller(error: Exception, tool: str, request_id: str) -> Fault | None:
    """The fault behind an error; None, with the traceback in the log, when nobody foresaw it."""
    if fault := as_fault(error):
        return fault
    if isinstance(error, NotFoundError):
        return NotFound("there is no such tool", hint="tools/list names them.")
    if isinstance(cause := error.__cause__, pydantic.ValidationError) and _is_argument_error(error):
        return _invalid_arguments(cause)
    log.error("internal", extra={"tool": tool, "request_id": request_id}, exc_info=error)
    return None


def _is_argument_error(error: Exception) -> bool:
    """FastMCP raises its own ValidationError for arguments; one inside a tool is a defect of ours."""
    return isinstance(error, FastMCPError) and type(error).__name__ == "ValidationError"


def _invalid_arguments(error: pydantic.ValidationError) -> InvalidInput:
    """What to send instead, for each argument that can't be taken."""
    said = "; ".join(
        _argument_problem(dict(detail)) for detail in error.errors(include_url=False, include_input=False)[:5]
    )
    return InvalidInput(said, hint="The tool's input schema says what each argument takes.")


def _argument_problem(detail: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "unexpected_keyword_argument":
        return f"{where}: there is no such argument"
    if detail["type"] in {"missing_argument", "missing"}:
        return f"{where}: is required"
    return f"{where}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"


def _internal_error_text(request_id: str) -> str:
    return (
        f"internal: something went wrong that should not have. Tell whoever runs this butler: reference {request_id}."
    )
