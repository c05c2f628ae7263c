"""How the benchmarks measure: bare and ours by turns, so that a noisy machine disturbs both alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure: what, its value, its bound, and whether it holds."""

    what: str
    value: float
    bound: float | None
    unit: str = "x"
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bound."""
        return self.bound is None or self.value <= self.bound

    def __str__(self) -> str:
        bound = "" if self.bound is None else f" (at most {self.bound:g})"
        mark = "ok  " if self.holds else "OVER"
        note = f"  [{self.note}]" if self.note else ""
        return f"{mark} {self.what}: {self.value:.3g} {self.unit}{bound}{note}"


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def wall(work: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def by_turns(
    bare: Callable[[], object],
    ours: Callable[[], object],
    *,
    rounds: int = 7,
    clock: Callable[[Callable[[], object]], float] = cpu,
) -> tuple[float, float, float]:
    """Return the median seconds of bare and ours, and the median of their ratios, taken in pairs."""
    pairs = [(clock(bare), clock(ours)) for _ in range(rounds)]
    return (
        statistics.median(b for b, _ in pairs),
        statistics.median(o for _, o in pairs),
        statistics.median(o / b for b, o in pairs),
    )
