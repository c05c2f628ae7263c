"""MCP servers as sets of tools."""

from .server import McpServer, McpTool, mcp_server

__all__ = ["McpServer", "McpTool", "mcp_server"]
