"""The metrics of workers: the runs of lost workers that they continue, the lag of the sweep, and what waits in each queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..journal import Entry, RunInfo
from ..telemetry import Telemetry
from ..telemetry.trace import OLDEST, QUEUE, SWEEP_LAG, TAKEOVERS, WAITING, MetricPoint
from .shared_runs import SharedRuns

__all__ = ["SweepMetrics", "TakeoverCounter"]

_OF_PEOPLE = ("answered", "accepted", "tuned")  # entries that are added while no process runs
_BETWEEN = 10.0  # seconds: to count what waits takes longer than to sweep


class TakeoverCounter:
    """Counts the runs whose worker was lost when this one opened them; a listener of runs, see RunObserver.

    Args:
        telemetry: receives the metric.
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def opened(self, info: RunInfo, recorded: Sequence[Entry]) -> Callable[[Entry], None]:
        """Count a run that was opened before, and whose entries do not end with a pause."""
        kinds = (entry.kind for entry in reversed(recorded) if entry.kind not in _OF_PEOPLE)
        if info.epoch > 1 and next(kinds, "") not in ("interrupted", "suspended"):
            self._telemetry.measure(MetricPoint(TAKEOVERS, 1, {QUEUE: info.queue}))
        return lambda _: None


class SweepMetrics:
    """Sends the metrics of a sweep.

    Args:
        runs: the state of the queues.
        telemetry: receives the metrics.
    """

    def __init__(self, runs: SharedRuns, telemetry: Telemetry) -> None:
        self._runs = runs
        self._telemetry = telemetry
        self._measured = -_BETWEEN  # when
        self._names: set[str] = set()  # of queues in which runs waited, whose gauges return to 0

    async def measure(self) -> None:
        """Measure, after a sweep and before it is recorded, unless this was done a moment ago."""
        if time.monotonic() - self._measured < _BETWEEN:
            return
        self._measured = time.monotonic()
        self._telemetry.measure(MetricPoint(SWEEP_LAG, (await self._runs.sweep_info()).lag))
        queues = {queue.name: queue for queue in await self._runs.queues()}
        for name in self._names | set(queues):
            waiting, age = 0, 0.0
            if name in queues and queues[name].waiting:
                waiting = queues[name].waiting
                age = max(0.0, self._runs.now() - queues[name].oldest)
            self._telemetry.measure(MetricPoint(WAITING, waiting, {QUEUE: name}))
            self._telemetry.measure(MetricPoint(OLDEST, age, {QUEUE: name}))
        self._names = set(queues)
