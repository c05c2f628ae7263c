"""Coding agents as steps: command-line programs that edit files, driven by a manifest and read by their events."""

from .manifest import Ending, Manifest, Patterns, PromptWords, Words, load_manifest, manifest_names
from .step import AgentOptions, AgentStep, agent

__all__ = [
    "AgentOptions",
    "AgentStep",
    "Ending",
    "Manifest",
    "Patterns",
    "PromptWords",
    "Words",
    "agent",
    "load_manifest",
    "manifest_names",
]
