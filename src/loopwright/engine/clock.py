"""Where time and waiting come from."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Where time and waiting come from; tests pass one they can set."""

    def monotonic(self) -> float:
        """Return seconds that only grow."""

    def wall(self) -> float:
        """Return seconds since the epoch."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return what to await for a pause."""
