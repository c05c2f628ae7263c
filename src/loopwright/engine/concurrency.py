"""Concurrent jobs: they start in order, an error cancels them, a question to a person does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Protocol, TypeVar

from ..errors import Suspended

__all__ = ["Adjustable", "run_all"]

T = TypeVar("T")


class Adjustable(Protocol):
    """A number of jobs that may change while they run."""

    def __call__(self) -> int:
        """Return the most jobs that run at a time."""

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when the number changes."""


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[object, object, T]]],
    limit: int | Adjustable | None = None,
    *,
    ready: Callable[[int], bool] | None = None,
    done: Callable[[int, T], None] | None = None,
    over: Callable[[], bool] | None = None,
    in_order: bool = False,
) -> list[T]:
    """Run jobs and return their values in the order of the jobs.

    The first error cancels the other jobs. A job that asks a person cancels nothing: the others
    continue as far as they can, then its question is raised.

    Args:
        jobs: functions that return coroutines.
        limit: the most jobs that run at a time, which may change while they run. Default: all.
        ready: whether the job at a position may start. Default: each may.
        done: called with the position and the value of each job that ends.
        over: whether to stop: no other job starts, the running ones are cancelled, and the values of
            the jobs that ended are returned.
        in_order: whether a question ends the start of further jobs while they run one at a time.
    """
    waiting = list(range(len(jobs)))
    running: dict[asyncio.Task[T], int] = {}
    ended: dict[int, asyncio.Task[T]] = {}
    asked = False
    # Without any of these there is nothing to do between the start and the first error.
    each = limit or ready or done or over
    when = asyncio.FIRST_COMPLETED if each else asyncio.FIRST_EXCEPTION
    try:
        while over is None or not over():
            startable = waiting if ready is None else [n for n in waiting if ready(n)]
            most = limit() if callable(limit) else limit or len(jobs)
            if in_order and asked and most == 1:
                startable = []
            for number in startable[: max(0, most - len(running))]:
                waiting.remove(number)
                running[asyncio.ensure_future(jobs[number]())] = number
            if not running:
                break
            waits: list[asyncio.Future[T] | asyncio.Future[None]] = [*running]
            if callable(limit):
                waits.append(limit.changed())
            await asyncio.wait(waits, return_when=when)
            finished = [task for task in running if task.done()]
            # Values before errors, and in order: `done` records what ended at the same moment as an
            # error.
            for task in sorted(finished, key=lambda task: (_broken(task), running[task])):
                number = running.pop(task)
                ended[number] = task
                if done is not None and not _broken(task):
                    done(number, task.result())
            if any(map(_failed, finished)):
                break
            asked = asked or any(map(_broken, finished))
    finally:
        await _cancel(running)
    every = [ended[number] for number in sorted(ended)]
    # The error of the earliest job is raised, even if that job failed while it was being cancelled: a
    # replay must raise the same error.
    if any(map(_failed, every)):
        ended |= {number: task for task, number in running.items()}
        every = [ended[number] for number in sorted(ended)]
    _raise_first(every)
    return [task.result() for task in every]


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait for them."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        # Retrieved, so that asyncio does not report the exception as never retrieved.
        _ = task.cancelled() or task.exception()


def _raise_first(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Raise the error of the first task that has one; a question only if none has another error."""
    errors = [e for task in tasks if not task.cancelled() and (e := task.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Suspended)):
        raise error


def _broken(task: asyncio.Task[object]) -> bool:
    return task.cancelled() or task.exception() is not None


def _failed(task: asyncio.Task[object]) -> bool:
    return task.cancelled() or not isinstance(task.exception(), Suspended | None)
