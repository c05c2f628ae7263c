"""The phased agent: planning, execution and refinement, each a loop."""

from .agent import PhasedAgent

__all__ = ["PhasedAgent"]
