"""Runs that only one machine can continue: their workspaces are folders of that machine."""

from __future__ import annotations

from ..engine.step import Step

__all__ = ["uses_workspace"]


def uses_workspace(step: Step) -> bool:
    """Return whether a step, or a step inside it, keeps files in a workspace."""
    if getattr(step, "workspace", None) is not None:
        return True
    return any(uses_workspace(part) for part in step.parts())
