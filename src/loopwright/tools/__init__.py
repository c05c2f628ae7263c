"""Tools for steps and models: Python functions, commands and MCP servers."""

from .base import FunctionTool, Tool, ToolOptions, ToolSet, call_tool, tool
from .commands import (
    CommandOptions,
    CommandTool,
    Output,
    ShellStep,
    UsageSource,
    Value,
    command_tool,
    shell,
)
from .mcp import McpServer, McpTool, Selection, mcp_server
from .process import CommandResult, run_command
from .sandbox import Sandbox, SandboxMode

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
