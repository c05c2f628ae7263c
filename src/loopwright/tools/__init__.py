"""Tools: what a step may do outside of Python."""

from .process import CommandResult, run_command
from .shell import ShellStep, shell

__all__ = ["CommandResult", "ShellStep", "run_command", "shell"]
