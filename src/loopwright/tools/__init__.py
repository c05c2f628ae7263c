"""Tools for steps and models: Python functions, commands and MCP servers."""

from typing import TYPE_CHECKING

from .._lazy import names_of
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

if TYPE_CHECKING:
    from .probes import UrlProbe

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
    "UrlProbe",
    "UsageSource",
    "Value",
    "call_tool",
    "command_tool",
    "mcp_server",
    "run_command",
    "shell",
    "tool",
]

__getattr__ = names_of(
    __name__, {".probes": ("UrlProbe",)}
)  # for the few loops that wait for a URL
