"""Middleware that authenticates, limits, times and logs every tool call."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pydantic
from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import get_http_request
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool as McpTool
from fastmcp.tools import ToolResult
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, ListToolsRequest, TextContent
from pydantic_core import ErrorDetails

from butlers.caller import Caller, current_caller, validate_tenant
from butlers.contract import RowCount, Tool, current_notes, current_row_count
from butlers.db import as_fault
from butlers.errors import Fault, Forbidden, InvalidInput, NotFound, TimedOut
from butlers.host.limits import OVERLOADED_ERROR_CODE, RateLimit
from butlers.host.metrics import Metrics

log = logging.getLogger("butlers.calls")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_INTERNAL_ERROR = "internal: an unexpected error occurred. Report it to the operator of this butler: reference {}."

Identify = Callable[[str], Caller]
Observe = Callable[[Caller, str], None]
Call = MiddlewareContext[CallToolRequestParams]
Next = CallNext[CallToolRequestParams, ToolResult]


class CallMiddleware(Middleware):
    """Identifies the caller, applies the tenant argument, and turns every error into one line for the caller."""

    def __init__(
        self,
        identify: Identify,
        limit: RateLimit,
        metrics: Metrics,
        tools: Mapping[str, Tool],
        seconds: float,
        observe: Observe,
    ) -> None:
        self._observe = observe
        self._identify = identify
        self._limit = limit
        self._metrics = metrics
        self._tools = tools
        self._seconds = seconds
        self._listed_tools: Sequence[McpTool] | None = None
        self._active_calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_until_idle(self) -> None:
        """Return when no call is active."""
        await self._idle.wait()

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """Take a message from the tenant's rate. Raises `MCPError` with the fault's text if it is refused.

        A tool call is taken in `on_call_tool`, where a refusal is the tool's answer. A notification has no answer.
        """
        if context.method != "tools/call":
            try:
                self._limit.admit(self._identify(_request_id()).tenant)
            except Fault as fault:
                if context.type == "request":
                    raise MCPError(OVERLOADED_ERROR_CODE, str(fault)) from None
        return await call_next(context)

    async def on_list_tools(
        self, context: MiddlewareContext[ListToolsRequest], call_next: CallNext[ListToolsRequest, Sequence[McpTool]]
    ) -> Sequence[McpTool]:
        """Return the tools. They never change, and resolving their schemas takes most of the time of a list."""
        if self._listed_tools is None:
            self._listed_tools = await call_next(context)
        return self._listed_tools

    async def on_call_tool(self, context: Call, call_next: Next) -> ToolResult:
        """Serve one call. Raises `ToolError` with a fault's text, or with a reference to the log."""
        started, request_id, row_count = time.perf_counter(), _request_id(), RowCount()
        # Unknown names must not become metric labels: each one would stay in memory.
        name = context.message.name if context.message.name in self._tools else "unknown"
        outcome, caller = "ok", None
        self._count(+1)
        try:
            caller, tenant_call = self._resolve_caller(context, request_id)
            self._check_role(caller, name)
            self._observe(caller, name)
            return await self._serve(caller, row_count, tenant_call, call_next)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:  # noqa: BLE001 — the caller gets one line, the log gets the rest
            fault = _fault_for_caller(error, name, request_id)
            outcome = fault.code if fault else "internal"
            raise ToolError(str(fault) if fault else _INTERNAL_ERROR.format(request_id)) from None
        finally:
            self._count(-1)
            self._record(name, outcome, time.perf_counter() - started, caller, request_id, row_count)

    def _count(self, change: int) -> None:
        self._active_calls += change
        (self._idle.clear if self._active_calls else self._idle.set)()

    def _resolve_caller(self, context: Call, request_id: str) -> tuple[Caller, Call]:
        """Return the caller, moved to the tenant it named, and the call without that argument."""
        caller = self._identify(request_id)
        self._limit.admit(caller.tenant)
        arguments = self._resolve_aliases(context.message)
        tenant = arguments.pop("tenant_id", None)
        if tenant is not None and tenant != "":
            caller = caller.within(validate_tenant(tenant))
        return caller, replace(context, message=context.message.model_copy(update={"arguments": arguments}))

    def _check_role(self, caller: Caller, name: str) -> None:
        """Raise `Forbidden` if a reader calls a tool that changes something."""
        tool = self._tools.get(name)
        if tool is not None and not tool.is_allowed(caller):
            raise Forbidden(
                f"the role reader may not call {name}", hint="Use a key without the role reader to change memories."
            )

    def _resolve_aliases(self, message: CallToolRequestParams) -> dict[str, Any]:
        """Return the arguments under the names in the tool's schema."""
        arguments = dict(message.arguments or {})
        tool = self._tools.get(message.name)
        for alias, name in tool.aliases.items() if tool else ():
            if alias in arguments and name not in arguments:
                arguments[name] = arguments.pop(alias)
        return arguments

    async def _serve(self, caller: Caller, row_count: RowCount, context: Call, call_next: Next) -> ToolResult:
        notes: list[str] = []
        caller_token, row_count_token = current_caller.set(caller), current_row_count.set(row_count)
        notes_token = current_notes.set(notes)
        try:
            async with asyncio.timeout(self._seconds) as timeout:
                return _with_notes(await call_next(context), notes)
        except TimeoutError:
            if timeout.expired():
                raise TimedOut(f"the call took longer than {self._seconds:g} s") from None
            raise
        finally:
            current_caller.reset(caller_token)
            current_row_count.reset(row_count_token)
            current_notes.reset(notes_token)

    def _record(
        self, name: str, outcome: str, seconds: float, caller: Caller | None, request_id: str, row_count: RowCount
    ) -> None:
        self._metrics.calls.labels(name, outcome).inc()
        self._metrics.seconds.labels(name).observe(seconds)
        if row_count.asked:
            self._metrics.rows_asked.labels(name).inc(row_count.asked)
            self._metrics.rows_returned.labels(name).inc(row_count.returned)
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


def _with_notes(result: ToolResult, notes: Sequence[str]) -> ToolResult:
    """Return the result with each note as a further text; its structured content stays the same."""
    if notes:
        result.content = [*result.content, *(TextContent(type="text", text=note) for note in notes)]
        result.meta = {**(result.meta or {}), "notes": list(notes)}
    return result


def _request_id() -> str:
    """Return the client's request id if it is well-formed, else a new one."""
    try:
        header = get_http_request().headers.get("x-request-id", "")
    except RuntimeError:
        header = ""
    return header if _REQUEST_ID.fullmatch(header) else str(uuid4())


def _fault_for_caller(error: Exception, tool: str, request_id: str) -> Fault | None:
    """Return the fault behind an error. For an unexpected error, log the traceback and return None."""
    if fault := as_fault(error):
        return fault
    if isinstance(error, NotFoundError):
        return NotFound("there is no such tool", hint="tools/list names the tools.")
    # FastMCP rejected the arguments; a pydantic error raised inside a tool is a bug in the tool.
    if isinstance(error, ValidationError) and isinstance(cause := error.__cause__, pydantic.ValidationError):
        return _invalid_arguments(cause)
    log.error("internal", extra={"tool": tool, "request_id": request_id}, exc_info=error)
    return None


def _invalid_arguments(error: pydantic.ValidationError) -> InvalidInput:
    """Return a fault that describes the first five rejected arguments."""
    details = error.errors(include_url=False, include_input=False)[:5]
    problems = "; ".join(map(_argument_problem, details))
    return InvalidInput(problems, hint="The tool's input schema says what each argument takes.")


def _argument_problem(detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "unexpected_keyword_argument":
        return f"{where}: there is no such argument"
    if detail["type"] in {"missing_argument", "missing"}:
        return f"{where}: is required"
    return f"{where}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
