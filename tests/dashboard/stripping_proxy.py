"""A small reverse proxy that takes a prefix off every path, as an operator configures one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2 as httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from butlers.host import http
from memory.memory_fixtures import QuietServer

_OF_THE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"}


@asynccontextmanager
async def serve_proxy(upstream: str, prefix: str) -> AsyncIterator[str]:
    """Serve `prefix` and nothing else; the host and the origin of the reader pass through. Yields the address."""
    async with httpx.AsyncClient(follow_redirects=False) as client:

        async def forward(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            await (await _answer(client, upstream, prefix, Request(scope, receive)))(scope, receive, send)

        with http.bind_socket("127.0.0.1", 0) as socket:
            web = QuietServer(uvicorn.Config(forward, lifespan="off", log_config=None, ws="none"))
            serving = asyncio.create_task(web.serve(sockets=[socket]))
            while not web.started:  # noqa: ASYNC110 — uvicorn has no event to wait for
                await asyncio.sleep(0.01)
            try:
                yield f"http://127.0.0.1:{socket.getsockname()[1]}"
            finally:
                web.should_exit = True
                await serving


async def _answer(client: httpx.AsyncClient, upstream: str, prefix: str, request: Request) -> Response:
    path = request.url.path
    if not path.startswith(prefix + "/"):
        return PlainTextResponse(f"{path} is not under {prefix}", status_code=502)
    if path.endswith("/live"):
        return PlainTextResponse("", status_code=204)
    query = f"?{request.url.query}" if request.url.query else ""
    response = await client.request(
        request.method, upstream + path.removeprefix(prefix) + query,
        headers=request.headers.raw, content=await request.body(),
    )  # fmt: skip
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_CONNECTION]
    answer = Response(response.content, response.status_code)
    for name, value in headers:
        answer.headers.append(name, value) if name == "set-cookie" else answer.headers.__setitem__(name, value)
    return answer
