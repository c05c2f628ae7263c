"""Permits for effects: a limit that several processes share holds an effect back before it begins.

The resource `permits` of a run is an EffectPermits. Without it nothing is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .step import Step

__all__ = ["EffectPermits", "names_of"]


class EffectPermits(Protocol):
    """Gives permits for effects."""

    async def take(self, step: Step) -> Sequence[str]:
        """Wait until a step may begin; return what `give_back` needs."""

    async def give_back(self, names: Sequence[str]) -> None:
        """Return the permits of a step that has ended."""


def names_of(step: Step) -> list[str]:
    """Return the names by which limits apply to a step: provider and model, or the name of the step."""
    request = getattr(step, "request", None)
    provider, model = getattr(request, "provider", ""), getattr(request, "model", "")
    if provider and model:
        return [provider, f"{provider}:{model}"]
    return [step.name]
