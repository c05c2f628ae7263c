"""Prompts as steps, and prompts whose model may call tools."""

from .conversation import Conversation
from .prompt import Prompt, prompt
from .tool_prompt import Selected, ToolPrompt, ToolStep, tool_prompt, tool_step

__all__ = [
    "Conversation",
    "Prompt",
    "Selected",
    "ToolPrompt",
    "ToolStep",
    "prompt",
    "tool_prompt",
    "tool_step",
]
