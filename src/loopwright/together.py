"""Work that goes on at once: joined in a fixed order, cut short by an error, never by a question."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from .errors import Suspended

__all__ = ["gather", "question_of"]


async def gather(work: list[Any]) -> list[Any]:
    """Run coroutines at once and return their values in order; the first error cancels the others.

    Of several errors the one of the earliest branch is raised, so that a replay raises the same.
    One that waits for a person cancels nothing: the others go on as far as they can.
    """
    tasks = [asyncio.ensure_future(item) for item in work]
    flying = set(tasks)
    try:
        while flying:
            done, flying = await asyncio.wait(flying, return_when=asyncio.FIRST_EXCEPTION)
            if any(map(_failed, done)):
                break
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished)
    broken = [task for task in tasks if not task.cancelled() and task.exception() is not None]
    if broken:  # an error before a question: it will not be answered
        first = next(filter(_failed, broken), broken[0])
        raise cast("BaseException", first.exception())
    return [task.result() for task in tasks]


def question_of(task: asyncio.Task[Any]) -> Suspended | None:
    """Return what a task that is done asks a person, if that is how it ended."""
    error = None if task.cancelled() else task.exception()
    return error if isinstance(error, Suspended) else None


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.cancelled() or (task.exception() is not None and question_of(task) is None)
