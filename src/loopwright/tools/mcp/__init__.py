"""MCP servers: how one is declared, started, watched and called."""

from .server import McpServer, McpTool, mcp_server

__all__ = ["McpServer", "McpTool", "mcp_server"]
