"""Agents: conversations with a model over several calls, with tools."""

from .calling import call_with_tools

__all__ = ["call_with_tools"]
