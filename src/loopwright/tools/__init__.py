"""Tools for steps and models: Python functions, commands and MCP servers."""

from .base import Tool, ToolSet, call_tool
from .command import CommandTool, command_tool
from .function import FunctionTool, tool
from .mcp.server import McpServer, McpTool, mcp_server
from .process import CommandResult, run_command
from .shell import ShellStep, shell

__all__ = [
    "CommandResult",
    "CommandTool",
    "FunctionTool",
    "McpServer",
    "McpTool",
    "ShellStep",
    "Tool",
    "ToolSet",
    "call_tool",
    "command_tool",
    "mcp_server",
    "run_command",
    "shell",
    "tool",
]
