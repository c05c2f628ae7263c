"""Tools for steps and models: Python functions, commands and MCP servers."""

from .base import Tool, ToolOptions, ToolSet, call_tool
from .command import CommandTool, command_tool
from .function import FunctionTool, tool
from .mcp.server import McpServer, McpTool, mcp_server
from .mcp.settings import Selection
from .process import CommandResult, run_command
from .sandbox import Sandbox, SandboxMode
from .shell import CommandOptions, Output, ShellStep, Value, shell
from .usage_report import UsageSource

__all__ = [
    "CommandOptions",
    "CommandResult",
    "CommandTool",
    "FunctionTool",
    "McpServer",
    "McpTool",
    "Output",
    "Sandbox",
    "SandboxMode",
    "Selection",
    "ShellStep",
    "Tool",
    "ToolOptions",
    "ToolSet",
    "UsageSource",
    "Value",
    "call_tool",
    "command_tool",
    "mcp_server",
    "run_command",
    "shell",
    "tool",
]
