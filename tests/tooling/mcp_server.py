"""An MCP server for tests: stdio without arguments, streamable HTTP with a port."""

import sys

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("harbour")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def departures(harbour: str) -> dict[str, str]:
    """When ferries leave"""
    return {"harbour": harbour, "next": "07:00"}


@server.tool()
def book(seats: int) -> str:
    """Book seats"""
    if seats > 3:
        raise ToolError("only three seats are left")
    return f"{seats} seats booked"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
