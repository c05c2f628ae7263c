"""Jobs that run at once: begun in order, kept in order, cancelled by an error, never by a question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TypeVar

from ..errors import Suspended

__all__ = ["run_all"]

T = TypeVar("T")


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[object, object, T]]],
    limit: int | None = None,
    *,
    ready: Callable[[int], bool] | None = None,
    done: Callable[[int, T], None] | None = None,
    over: Callable[[], bool] | None = None,
) -> list[T]:
    """Run jobs, at most `limit` at once, and return their values in the order of the jobs.

    A job begins when there is room and it is `ready`, the first of them first (without `ready`: all
    are). `done` gets the place and the value of each job that ends, before an error of the same
    moment is raised. Once `over` says so nothing begins, the jobs that run are cancelled, and the
    values of those that ended are returned.

    The first error cancels the other jobs; of several errors that of the earliest job is raised, so
    that a replay raises the same. A job that asks a person cancels nothing: the others go on as far
    as they can, then its question is raised.
    """
    waiting = list(range(len(jobs)))
    running: dict[asyncio.Task[T], int] = {}
    ended: dict[int, asyncio.Task[T]] = {}
    each = limit or ready or done or over  # else nothing is to be done before the first error
    when = asyncio.FIRST_COMPLETED if each else asyncio.FIRST_EXCEPTION
    try:
        while over is None or not over():
            able = waiting if ready is None else [n for n in waiting if ready(n)]
            for number in able[: (limit or len(jobs)) - len(running)]:
                waiting.remove(number)
                running[asyncio.ensure_future(jobs[number]())] = number
            if not running:
                break
            finished, _ = await asyncio.wait(running, return_when=when)
            for task in sorted(finished, key=lambda task: (_broken(task), running[task])):
                number = running.pop(task)
                ended[number] = task
                if done is not None and not _broken(task):
                    done(number, task.result())
            if any(map(_failed, finished)):
                break
    finally:
        await _cancel(running)
    in_order = [ended[number] for number in sorted(ended)]
    if any(map(_failed, in_order)):  # an error of a job that was cancelled may be the earliest
        ended |= {number: task for task, number in running.items()}
        in_order = [ended[number] for number in sorted(ended)]
    _raise_first(in_order)
    return [task.result() for task in in_order]


async def _cancel(tasks: Iterable[asyncio.Task[object]]) -> None:
    """Cancel tasks and wait for them; what they raise meanwhile is not reported as unseen."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
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
