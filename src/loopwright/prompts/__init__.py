"""Prompts as steps, and prompts whose model may call tools."""

from .prompt import Files, Prompt, Text, prompt
from .settings import Conversation, PromptSettings
from .tool_prompt import Selected, ToolPrompt, ToolStep, tool_prompt, tool_step

__all__ = [
    "Conversation",
    "Files",
    "Prompt",
    "PromptSettings",
    "Selected",
    "Text",
    "ToolPrompt",
    "ToolStep",
    "prompt",
    "tool_prompt",
    "tool_step",
]
