"""Tools: what a step or a model may do: Python functions, commands, MCP servers."""

from .base import Tool, ToolSet, call_tool
from .function import FunctionTool, tool
from .process import CommandResult, run_command
from .shell import ShellStep, shell

__all__ = [
    "CommandResult",
    "FunctionTool",
    "ShellStep",
    "Tool",
    "ToolSet",
    "call_tool",
    "run_command",
    "shell",
    "tool",
]
