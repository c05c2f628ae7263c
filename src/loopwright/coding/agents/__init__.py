"""Coding agents as steps: command-line programs that edit files, driven by a manifest and read by their events."""

from .manifest import Manifest, load_manifest, manifest_names
from .step import AgentStep, agent

__all__ = ["AgentStep", "Manifest", "agent", "load_manifest", "manifest_names"]
