"""Minimal MCP server: one tool that does nothing, served over HTTP the way a butler serves its tools."""

import socket
import sys

import uvicorn
from fastmcp import FastMCP

mcp = FastMCP("empty")


@mcp.tool
async def nothing(query: str) -> dict[str, str]:
    """Return the query."""
    return {"query": query}


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"ready: http://127.0.0.1:{port}/mcp", file=sys.stderr, flush=True)


if __name__ == "__main__":
    app = mcp.http_app(path="/mcp", stateless_http=True, json_response=True)
    _Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, ws="none")).run()
