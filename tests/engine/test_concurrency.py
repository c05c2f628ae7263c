"""Work at once: the rules of `run_all`, and the size of the loop that a reader sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from loopwright.engine.composites import run_all
from loopwright.errors import StepError, Suspended
from loopwright.records import Reason, Stop

Job = Callable[[], Coroutine[Any, Any, Any]]


def job(value: Any, turns: int = 0, seen: list[Any] | None = None) -> Job:
    """Return a job that takes so many turns of the event loop and returns or raises the value."""

    async def work() -> Any:
        for _ in range(turns):
            await asyncio.sleep(0)
        if seen is not None:
            seen.append(value)
        if isinstance(value, BaseException):
            raise value
        return value

    return work


def question(path: str) -> Suspended:
    return Suspended(Stop(Reason.APPROVAL, "go on?"), path=path)


def test_values_come_in_the_order_of_the_jobs() -> None:
    """Rule: values are in the order of the jobs, whichever ends first."""
    assert asyncio.run(run_all([job(n, turns=9 - n) for n in range(4)])) == [0, 1, 2, 3]
    assert asyncio.run(run_all([])) == []


def test_no_more_than_the_limit_run_at_once() -> None:
    """Rule: at most `limit` jobs run at a time, and the first begin first."""
    running, most, begun = 0, 0, []

    async def work(number: int) -> None:
        nonlocal running, most
        begun.append(number)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    asyncio.run(run_all([lambda n=n: work(n) for n in range(7)], 2))
    assert (most, begun) == (2, list(range(7)))


def test_the_earliest_error_is_raised_and_nothing_begins_after_it() -> None:
    """Rule: the first error cancels the others; of errors of one moment the earliest job's is raised."""
    seen: list[Any] = []
    jobs = [job(StepError(name), seen=seen) for name in ("a", "b")] + [job("late", seen=seen)]
    with pytest.raises(StepError, match="^a$"):
        asyncio.run(run_all(jobs, 2))
    assert "late" not in seen


def test_what_ends_with_an_error_is_kept() -> None:
    """Rule: `done` gets the values of the same moment before the error is raised."""
    kept: list[Any] = []
    with pytest.raises(StepError):
        asyncio.run(
            run_all([job(StepError("no")), job(2)], done=lambda place, v: kept.append((place, v)))
        )
    assert kept == [(1, 2)]


def test_a_question_cancels_nothing() -> None:
    """Rule: the others go on; the earliest question is raised at the end, an error before it."""
    seen: list[Any] = []
    jobs = [job(question("a")), job(question("b")), job("on", turns=5, seen=seen)]
    with pytest.raises(Suspended) as raised:
        asyncio.run(run_all(jobs, 2))
    assert (raised.value.path, seen) == ("a", ["on"])
    with pytest.raises(StepError):
        asyncio.run(run_all([job(question("a")), job(StepError("no"), turns=3)]))


def test_jobs_wait_until_they_are_ready_and_none_begins_once_it_is_over() -> None:
    """Rule: a job begins when `ready` says so; when it is `over`, the values so far are returned."""
    done: dict[int, Any] = {}
    jobs = [job("first", turns=3), job("second"), job("third")]
    needs = {0: 1, 1: 2}
    values = asyncio.run(
        run_all(
            jobs,
            ready=lambda n: n not in needs or needs[n] in done,
            done=done.__setitem__,
            over=lambda: len(done) == 2,
        )
    )
    assert (values, list(done)) == (["second", "third"], [2, 1])
