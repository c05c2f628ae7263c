"""Concurrent jobs, and the number that runs at a time, which a person may change.

The jobs start in order. An error cancels the others, a question to a person does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from ..errors import Suspended
from ..records.codec import Json
from .context import Context
from .run_state import Run

__all__ = ["AtOnce", "at_once_of", "path_of", "run_all"]

T = TypeVar("T")


class AtOnce:
    """The most jobs of a step that run at a time: the declared number, or the one that a person set.

    Args:
        run: the run.
        path: the path of the step, under which a person names it.
        declared: the number that the step declares.
    """

    __slots__ = ("_changed", "_path", "_run", "declared")

    def __init__(self, run: Run, path: str, declared: int) -> None:
        self._run = run
        self._path = path
        self.declared = declared
        self._changed: asyncio.Future[None] | None = None

    def __call__(self) -> int:
        """Return the number in force."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path))
        return most

    def at(self, active: float) -> int:
        """Return the number that was in force at an active second of the run."""
        tuned = self._run.tuned
        most: int = self.declared if tuned is None else self._tuned(tuned.of(self._path, active))
        return most

    def _tuned(self, limits: Mapping[str, Json]) -> Json:
        return limits.get("at_once", self.declared)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when the number changes."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def tune(self, limits: Mapping[str, Json]) -> None:
        """Wake the step that starts the jobs: a raised number counts before one of them ends."""
        if "at_once" in limits and self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def refresh(self) -> None:
        """Do nothing: a number of jobs does not depend on the budgets above."""


def path_of(ctx: Context, name: str) -> str:
    """Return the path under which a person names a step: it ends with the step's name."""
    return ctx.path if ctx.path.rsplit("/", 1)[-1] == name else ctx.below(name)


@contextlib.contextmanager
def at_once_of(ctx: Context, name: str, declared: int) -> Iterator[AtOnce | int]:
    """Open the number of jobs of a step to changes, while the step runs.

    Args:
        ctx: the context of the step.
        name: its name.
        declared: the number that it declares.

    Returns:
        The number, for `run_all`; a plain number in a run that cannot be tuned.
    """
    run = ctx.run
    if run.silent:
        yield declared
        return
    path = path_of(ctx, name)
    # With a slash at the end, which no path has: a loop inside the step may have the same path.
    key = f"{path}/"
    limit = run.open_loops[key] = AtOnce(run, path, declared)
    try:
        yield limit
    finally:
        run.open_loops.pop(key, None)


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[object, object, T]]],
    limit: int | AtOnce | None = None,
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
