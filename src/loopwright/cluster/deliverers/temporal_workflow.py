"""The workflow of a run, in a module of its own, because Temporal's workers import it."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

__all__ = ["ACTIVITY", "BEAT", "RunWorkflow"]

ACTIVITY = "loopwright_run"
BEAT = 4.0  # seconds without a heartbeat until Temporal repeats the activity
_LONGEST_RUN = timedelta(days=365)


@workflow.defn(name="loopwright")
class RunWorkflow:
    """Runs an activity until the run has ended; between two activities it waits for a signal."""

    def __init__(self) -> None:
        self._signals = 0

    @workflow.signal
    def wake(self) -> None:
        """Run the activity again."""
        self._signals += 1

    @workflow.run
    async def run(self, run_id: str) -> None:
        """Run the activity after each signal, until it says that the run has ended."""
        while True:
            await workflow.wait_condition(lambda: self._signals > 0)
            self._signals = 0
            ended = await workflow.execute_activity(
                ACTIVITY,
                run_id,
                result_type=bool,
                start_to_close_timeout=_LONGEST_RUN,
                heartbeat_timeout=timedelta(seconds=BEAT),
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=1)
                ),
            )
            if ended:
                return
