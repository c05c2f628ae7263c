"""A model judges one criterion, with votes."""

from .judge import Judge, judge

__all__ = ["Judge", "judge"]
