"""Prompts as steps, and prompts whose model may call tools."""

from .conversation import Conversation
from .prompt import Prompt, prompt

__all__ = ["Conversation", "Prompt", "prompt"]
