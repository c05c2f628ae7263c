"""Deliveries by Temporal: a run is a workflow of one activity, which Temporal repeats when its worker dies.

The workflow runs the activity, with heartbeats. If the run has ended, the workflow completes. If it paused, the workflow
waits for a signal, which `enqueue` sends. The history of a workflow has a few events, whatever the run does.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from types import ModuleType
from typing import TYPE_CHECKING

from ...errors import ConfigurationError
from ..delivery import Delivery, Handle

if TYPE_CHECKING:
    from temporalio.client import Client

__all__ = ["TemporalDeliverer"]

DEFAULT_ADDRESS = "localhost:7233"
_PREFIX = "loopwright-"  # of task queues and workflows
_BATCH = 50  # requests at once
# In which a worker answers for a workflow, before another one is asked.
_TASK = timedelta(seconds=2)
# Workflows that a worker has at once: more would wait for each other, and be lost with it.
_TASKS = 10
# Milliseconds until a silent connection is asked whether it is there, and until it is lost.
_PING, _PONG = 5000, 5000


def _definition() -> ModuleType:
    """Return the module of the workflow, which imports Temporal's client."""
    from . import temporal_workflow

    return temporal_workflow


class TemporalDeliverer:
    """A deliverer for operators of Temporal.

    Args:
        address: `HOST:PORT` or `HOST:PORT/NAMESPACE` of the frontend. Empty: `localhost:7233`.
        journal: not used.

    Raises:
        ConfigurationError: if Temporal's client is not installed.

    Example:
        >>> deliverer = TemporalDeliverer("localhost:7233/default", "")
    """

    def __init__(self, address: str, journal: str) -> None:
        del journal
        self._host, _, namespace = (address or DEFAULT_ADDRESS).removeprefix("//").partition("/")
        self._namespace = namespace or "default"
        self._client: Client | None = None

    async def prepare(self) -> None:
        """Connect; see Deliverer.prepare.

        Raises:
            ConfigurationError: if the server cannot be reached.
        """
        from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
        from temporalio.client import Client
        from temporalio.service import KeepAliveConfig, RPCError, RPCStatusCode

        if self._client is not None:
            return
        try:
            client = await Client.connect(
                self._host,
                namespace=self._namespace,
                keep_alive_config=KeepAliveConfig(_PING, _PONG),
            )
            # A connection does not ask for the namespace, and a workflow would fail after its run is stored.
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=client.namespace)
            )
            self._client = client
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise ConfigurationError(
                f"deliverer temporal: {self._host} has no namespace {self._namespace!r}. Create it with "
                f"temporal operator namespace create {self._namespace}, or use temporal:HOST:PORT/NAMESPACE"
            ) from None
        except RuntimeError as error:
            raise ConfigurationError(
                # The library prints the error of its Rust part, which names no remedy.
                f"deliverer temporal: {self._host} cannot be reached. Start a server there, or use temporal:HOST:PORT"
            ) from error

    def _connected(self) -> Client:
        if self._client is None:
            raise ConfigurationError("deliverer temporal: call prepare first")
        return self._client

    async def enqueue(self, deliveries: Sequence[Delivery]) -> None:
        """Start workflows, or signal those that wait; see Deliverer.enqueue."""
        for first in range(0, len(deliveries), _BATCH):
            await asyncio.gather(*map(self._start, deliveries[first : first + _BATCH]))

    async def _start(self, one: Delivery) -> None:
        from temporalio.common import Priority, WorkflowIDConflictPolicy

        await self._connected().start_workflow(
            _definition().RunWorkflow.run,
            one.run_id,
            id=f"{_PREFIX}{one.run_id}",
            task_queue=f"{_PREFIX}{one.queue}",
            task_timeout=_TASK,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="wake",
            priority=Priority(priority_key=max(1, 5 - one.priority)),
        )

    async def waiting(self, deliveries: Sequence[Delivery]) -> set[str]:
        """Return the runs whose workflow is running and does not wait for a signal."""
        run_ids = [one.run_id for one in deliveries]
        states = await asyncio.gather(*map(self._is_waiting, run_ids))
        return {run_id for run_id, waiting in zip(run_ids, states, strict=True) if waiting}

    async def _is_waiting(self, run_id: str) -> bool:
        from temporalio.client import WorkflowExecutionStatus
        from temporalio.service import RPCError, RPCStatusCode

        try:
            handle = self._connected().get_workflow_handle(f"{_PREFIX}{run_id}")
            description = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        if description.status is not WorkflowExecutionStatus.RUNNING:
            return False
        # A workflow that waits for a signal has neither an activity nor a task.
        raw = description.raw_description
        return bool(raw.pending_activities) or raw.HasField("pending_workflow_task")

    async def serve(self, handle: Handle, *, queues: Mapping[str, int]) -> None:
        """Deliver runs until cancelled; see Deliverer.serve."""
        async with asyncio.TaskGroup() as tasks:
            for name, slots in queues.items():
                tasks.create_task(self._serve(handle, name, slots))

    async def _serve(self, handle: Handle, name: str, slots: int) -> None:
        from temporalio import activity
        from temporalio.worker import UnsandboxedWorkflowRunner, Worker

        definition = _definition()

        @activity.defn(name=definition.ACTIVITY)
        async def run(run_id: str) -> bool:
            task = asyncio.ensure_future(handle(run_id))
            try:
                while not task.done():
                    activity.heartbeat()
                    await asyncio.wait({task}, timeout=definition.BEAT / 3)
                return task.result()
            finally:
                task.cancel()

        worker = Worker(
            self._connected(),
            task_queue=f"{_PREFIX}{name}",
            workflows=[definition.RunWorkflow],
            activities=[run],
            max_concurrent_activities=slots,
            max_concurrent_workflow_tasks=_TASKS,
            # What the server answers to the requests of a worker that is stopped or cut off is lost, for one timeout each.
            max_concurrent_activity_task_polls=1,
            max_concurrent_workflow_task_polls=2,  # of which one is for workflows that it had before
            sticky_queue_schedule_to_start_timeout=_TASK,
            # The workflow is ours and deterministic; the sandbox would import it anew for each run.
            workflow_runner=UnsandboxedWorkflowRunner(),
            graceful_shutdown_timeout=timedelta(seconds=0),
        )
        serving = asyncio.create_task(worker.run())
        try:
            await asyncio.shield(serving)
        finally:
            with contextlib.suppress(Exception):
                await worker.shutdown()
            await asyncio.gather(serving, return_exceptions=True)

    async def remove(self, run_ids: Collection[str]) -> None:
        """Terminate the workflows of these runs; see Deliverer.remove."""
        from temporalio.service import RPCError

        for run_id in run_ids:
            with contextlib.suppress(RPCError):  # it has ended, or does not exist
                handle = self._connected().get_workflow_handle(f"{_PREFIX}{run_id}")
                await handle.terminate("the run was removed from its queue")

    async def close(self) -> None:
        """Do nothing: the client closes its connection when it is dropped."""
