"""Answers to `celery inspect` and `celery status`: a worker of Loopwright looks like one of Celery to its operators.

Only questions are answered. A command that changes a worker, such as `shutdown`, has the reply that it is not supported.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import celery
    import kombu

__all__ = ["answer_inspections", "worker_name"]

Reply = dict[str, Any] | list[Any]  # JSON, in the forms that Celery's commands print


def worker_name() -> str:
    """Return the name under which `celery inspect` lists this process."""
    return f"loopwright-{os.getpid()}@{socket.gethostname()}"


class _Handlers(dict[str, Callable[..., Reply]]):
    """The answers by the name of the command."""

    def __missing__(self, command: str) -> Callable[..., Reply]:
        # Kombu logs a missing handler as an error with a traceback.
        return lambda _state, **_: {"error": f"a Loopwright worker does not support {command!r}"}


def answer_inspections(
    app: celery.Celery,
    channel: kombu.transport.virtual.Channel,
    *,
    task: str,
    queues: Mapping[str, int],
    held: Collection[str],
) -> None:
    """Answer on a channel from now on, as its connection receives messages.

    Args:
        app: the application of Celery.
        channel: a channel of the connection that receives messages.
        task: the name of the task that runs a run.
        queues: the slots by the name of the queue at the broker.
        held: the runs in progress.
    """
    name = worker_name()

    def active(_state: object, **_: object) -> Reply:
        return [
            {"id": run_id, "name": task, "args": [run_id], "kwargs": {}, "hostname": name}
            for run_id in sorted(held)
        ]

    def active_queues(_state: object, **_: object) -> Reply:
        return [{"name": queue, "routing_key": queue} for queue in queues]

    def stats(_state: object, **_: object) -> Reply:
        pool = {"implementation": "loopwright", "max-concurrency": sum(queues.values())}
        return {"pid": os.getpid(), "pool": pool, "total": {task: len(held)}}

    def nothing(_state: object, **_: object) -> Reply:
        return []

    handlers = _Handlers(
        ping=lambda _state, **_: {"ok": "pong"},
        active=active,
        active_queues=active_queues,
        stats=stats,
        registered=lambda _state, **_: [task],
        reserved=nothing,
        scheduled=nothing,
        revoked=nothing,
    )
    app.control.mailbox.Node(name, channel=channel, handlers=handlers).listen()
