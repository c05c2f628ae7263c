"""Prompts as steps, and prompts whose model may call tools."""

from .prompt import Prompt, prompt

__all__ = ["Prompt", "prompt"]
