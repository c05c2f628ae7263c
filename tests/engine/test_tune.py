"""Limits that people change while a run is recorded: raised, lowered and removed, live and between processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import (
    Budget,
    Context,
    Deadline,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    change_limits,
    for_each,
    parallel,
    resume,
    run,
    step,
)
from loopwright.errors import ConfigurationError, OwnershipLost, RunNotFound
from loopwright.insight import Recording, recordings_of
from loopwright.journal import Journal, surviving
from loopwright.journal.replay import request
from loopwright.journal.sqlite import SqliteJournal
from loopwright.testing import run_virtual

from .support import DyingJournal, KeepingJournal, entries_of, play

Tune = Callable[[Context], Awaitable[None]]
LIMITS = {"max_iterations": 3, "max_calls": 3}


def tuned_ids(ctx: Context) -> set[str]:
    """Return the requests that a run has taken."""
    return set() if ctx.run.tuned is None else ctx.run.tuned.ids


async def taken(ctx: Context, count: int = 1) -> None:
    """Wait until the run has taken a number of requests."""
    while len(tuned_ids(ctx)) < count:
        await asyncio.sleep(0.01)


def counting(act: Tune | None = None, *, at: int = 1, **fields: Any) -> Loop:
    """Return a loop whose iterations cost a call; in iteration `at`, `act` is awaited."""

    async def work(value: int, ctx: Context) -> int:
        ctx.spend(Usage(calls=1))
        if act is not None and value == at:
            await act(ctx)
        return value + 1

    fields.setdefault("until", MaxIterations(3))
    return Loop(
        step(work, reserve=lambda _: Usage(calls=1)),
        lambda _: {"score": 0.5, "passed": False},
        adapt=lambda last: last.output,
        name="count",
        **fields,
    )


def request_in(journal: Journal, **limits: Any) -> Tune:
    """Return a step's action: request limits, and wait until they are in force."""

    async def act(ctx: Context) -> None:
        await change_limits("r", journal=journal, who="Ann", reason="more", **limits)
        await taken(ctx)

    return act


@pytest.mark.parametrize(
    ("limits", "iterations", "reason"),
    [
        ({"max_iterations": 5}, 5, Reason.MAX_ITERATIONS),
        ({"max_iterations": 1}, 2, Reason.MAX_ITERATIONS),
        ({"max_calls": 2}, 2, Reason.BUDGET),
        ({"max_iterations": 9, "max_calls": 4}, 4, Reason.BUDGET),
    ],
)
def test_a_live_run_takes_a_limit_at_once(
    limits: dict[str, Any], iterations: int, reason: Reason
) -> None:
    """A limit counts from the next decision; lowered below the used amount, that decision ends the loop."""
    journal = KeepingJournal()
    result = play(counting(request_in(journal, **limits), at=2), 1, journal=journal, run_id="r")
    assert (result.iterations, result.reason) == (iterations, reason)
    assert result.usage.calls == iterations
    tuned = [entry.value for entry in entries_of(journal, "r") if entry.kind == "tuned"]
    assert [(v["loop"] or "run", v["key"], v["new"]) for v in tuned] == [
        ("count" if key == "max_iterations" else "run", key, value) for key, value in limits.items()
    ]
    assert {(v["who"], v["reason"]) for v in tuned} == {("Ann", "more")}


def test_a_limit_is_removed_up_to_the_ceiling() -> None:
    """Without a limit of iterations a loop runs to another condition, or to the ceiling."""
    journal = KeepingJournal()
    until = MaxIterations(3) | Budget(calls=6)
    loop = counting(request_in(journal, max_iterations="clear"), until=until)
    result = play(loop, 1, journal=journal, run_id="r")
    assert (result.iterations, result.reason) == (6, Reason.BUDGET)


def test_a_removed_budget_does_not_end_a_loop() -> None:
    """A budget of a loop is removed with its account and its condition."""
    journal = KeepingJournal()
    act = request_in(journal, loop="count", max_calls="clear")
    loop = counting(act, until=MaxIterations(4) | Budget(calls=2))
    assert play(loop, 1, journal=journal, run_id="r").iterations == 4


def test_only_a_limit_of_time_cuts_a_call_in_flight() -> None:
    """A limit of time that is lowered ends the call in flight, and the loop has its earlier output."""
    journal = KeepingJournal()

    async def forever(ctx: Context) -> None:
        await change_limits("r", journal=journal, timeout=7)
        await asyncio.sleep(1000)

    for until in (MaxIterations(5), MaxIterations(5) | Timeout(500)):
        journal = KeepingJournal()
        result = play(counting(forever, at=2, until=until), 1, journal=journal, run_id="r")
        assert (result.reason, result.iterations, result.output) == (Reason.TIMEOUT, 2, 2)
        assert 7 <= result.seconds < 8
        last = result.history[-1]
        assert last.interrupted and last.usage.calls == 1


def test_a_limit_of_time_is_raised_and_removed_while_a_call_waits() -> None:
    """A call goes on past the deadline that was in force when it began."""
    for value, reason in ((2000, Reason.MAX_ITERATIONS), ("clear", Reason.MAX_ITERATIONS)):
        journal = KeepingJournal()

        async def long(ctx: Context, value: Any = value, journal: Journal = journal) -> None:
            await change_limits("r", journal=journal, timeout=value)
            await asyncio.sleep(1000)

        until = MaxIterations(2) | Timeout(10)
        result = play(counting(long, until=until), 1, journal=journal, run_id="r")
        assert (result.reason, result.iterations) == (reason, 2)
        assert result.seconds >= 1000


def test_a_limit_of_time_of_an_outer_loop_ends_the_inner_one_with_a_record() -> None:
    """The inner loop records its end, and the outer loop is the one that ran out of time."""
    journal = KeepingJournal()

    async def forever(ctx: Context) -> None:
        await change_limits("r", journal=journal, loop="outer", timeout=3)
        await asyncio.sleep(1000)

    inner = counting(forever, at=2, until=MaxIterations(5))
    outer = Loop(inner, name="outer", until=MaxIterations(2))
    result = play(outer, 1, journal=journal, run_id="r")
    assert (result.reason, result.status) == (Reason.TIMEOUT, Status.EXHAUSTED)
    ends = {e.path: e.value for e in entries_of(journal, "r") if e.kind == "ended"}
    assert ends["outer/1/execute/count"]["cut"]["owner"] == "outer"
    again = play(outer, 1, journal=journal, run_id="r")
    assert again == result


async def _cancel_at(seconds: float, cancel: Callable[[], object], cleanup: float) -> None:
    """Work forever, with a cancellation at a time and a cleanup that takes some time."""
    asyncio.get_running_loop().call_later(seconds, cancel)
    try:
        await asyncio.sleep(1000)
    finally:
        await asyncio.sleep(cleanup)


_ENDS = (Status.EXHAUSTED, Status.FAILED)  # an inner loop may end without an output
MOMENTS = [6.9, 6.9999, 7.0, 7.0001, 7.1]


@pytest.mark.parametrize("seconds", MOMENTS)
@pytest.mark.parametrize("shape", ["loop", "nested", "branch"])
def test_a_cancelled_run_is_cancelled_at_a_tuned_limit_of_time_too(
    seconds: float, shape: str
) -> None:
    """Of a limit and a cancellation at about the same time, the cancellation is the reason, if it was in time."""
    journal = KeepingJournal()

    async def work(ctx: Context) -> None:
        await change_limits("r", journal=journal, loop="count", timeout=7)
        await _cancel_at(seconds, ctx.run.cancel, 0.3)

    result = play(_around(counting(work), shape), 1, journal=journal, run_id="r")
    assert result.reason is Reason.CANCELLED
    assert run_virtual(journal.find("r")).status == "cancelled"


@pytest.mark.parametrize("seconds", MOMENTS)
@pytest.mark.parametrize("shape", ["loop", "nested", "branch"])
def test_a_cancelled_task_is_cancelled_at_a_tuned_limit_of_time_too(
    seconds: float, shape: str
) -> None:
    """The task of the caller ends with CancelledError, and the run is interrupted and can be resumed."""
    journal = KeepingJournal()
    cancelled: list[asyncio.Task[object]] = []

    async def work(ctx: Context) -> None:
        if cancelled:
            return
        await change_limits("r", journal=journal, loop="count", timeout=7)
        cancelled.append(ctx.run.task)
        await _cancel_at(seconds, ctx.run.task.cancel, 0.3)

    loop = _around(counting(work), shape)
    with pytest.raises(asyncio.CancelledError):
        play(loop, 1, journal=journal, run_id="r")
    assert run_virtual(journal.find("r")).status == "interrupted"
    assert play(loop, 1, journal=journal, run_id="r", in_doubt="rerun").status in _ENDS


def _around(loop: Loop, shape: str) -> Any:
    """Return a loop alone, inside another one, or as a branch beside another step."""
    if shape == "loop":
        return loop
    if shape == "nested":
        return Loop(loop, name="outer", until=MaxIterations(1))

    async def other(value: int) -> int:
        await asyncio.sleep(500)
        return value

    return parallel(loop, other, name="both")


def test_a_step_that_goes_on_after_a_limit_of_time_leaves_its_task_uncancelled() -> None:
    """The loop ends at the limit, and what the caller awaits afterwards is not cancelled."""
    journal = KeepingJournal()

    async def stubborn(ctx: Context) -> None:
        await change_limits("r", journal=journal, timeout=7)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(1000)

    async def main() -> tuple[Result, int]:
        result = await run(counting(stubborn), 1, journal=journal, run_id="r")
        task = asyncio.current_task()
        assert task is not None
        return result, task.cancelling()

    result, requests = run_virtual(main())
    assert (result.reason, requests) == (Reason.TIMEOUT, 0)


def test_a_deadline_is_set_on_a_loop_without_one() -> None:
    """A deadline in the past ends the loop before its next iteration."""
    journal = KeepingJournal()
    act = request_in(journal, deadline="2000-01-01T00:00:00+00:00")
    result = play(counting(act), 1, journal=journal, run_id="r")
    assert result.reason is Reason.DEADLINE
    assert result.iterations == 1


def test_outer_budgets_hold() -> None:
    """A loop's limit that is above the budget of the run does not raise it."""
    journal = KeepingJournal()

    async def act(ctx: Context) -> None:
        await change_limits("r", journal=journal, loop="count", max_calls=50, max_iterations=50)
        await taken(ctx)

    result = play(counting(act), 1, journal=journal, run_id="r", budget=Budget(calls=5))
    assert (result.usage.calls, result.reason) == (5, Reason.BUDGET)


def test_a_budget_that_is_added_counts_the_calls_in_flight() -> None:
    """Of eight calls at once, a budget of four that is set while three run lets one more begin."""
    journal = KeepingJournal()
    began: list[int] = []

    async def call(value: int, ctx: Context) -> int:
        began.append(value)
        ctx.spend(Usage(calls=1))
        if value == 3:
            await change_limits("r", journal=journal, max_calls=4)
            await taken(ctx)
        await asyncio.sleep(value)
        return value

    items = for_each(step(call, reserve=lambda _: Usage(calls=1)), at_once=3, name="list")
    result = play(items, list(range(1, 9)), journal=journal, run_id="r")
    assert (began, result.reason) == ([1, 2, 3, 4], Reason.BUDGET)


def test_a_list_takes_more_items_at_a_time() -> None:
    """The number of items at a time changes at the next item that starts."""
    journal = KeepingJournal()
    running = most = 0

    async def work(value: int, ctx: Context) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if value == 1:
            await change_limits("r", journal=journal, at_once=4)
            await taken(ctx)
        await asyncio.sleep(1)
        running -= 1
        return value

    play(for_each(work, at_once=2, name="list"), list(range(12)), journal=journal, run_id="r")
    assert most == 4


async def test_another_process_reaches_a_live_run(tmp_path: Path) -> None:
    """A request by another connection to the same file is taken while a step runs."""
    async with (
        SqliteJournal(tmp_path / "runs.db") as mine,
        SqliteJournal(tmp_path / "runs.db") as other,
    ):
        loop = counting(request_in(other, max_iterations=5))
        result = await run(loop, 1, journal=mine, run_id="r")
        assert result.iterations == 5
        shown = await change_limits("r", journal=other)
        assert [(one.key, one.limit, one.used, one.tuned) for one in shown.limits] == [
            ("max_iterations", 5, 5, "Ann")
        ]


def waiting(**fields: Any) -> Loop:
    """Return a loop that asks a person after each iteration."""
    return counting(approve="iteration", **fields)


def test_a_run_without_a_process_takes_limits_when_it_is_resumed() -> None:
    """Requests wait in the inbox; the later of two counts, and each is recorded with the limit before."""
    journal = KeepingJournal()
    loop = waiting()
    play(loop, 1, journal=journal, run_id="r")
    for number in (7, 2):
        run_virtual(change_limits("r", journal=journal, max_iterations=number, who="Ann"))
    shown = run_virtual(change_limits("r", journal=journal, dry_run=True, max_iterations=9))
    assert (shown.limits[0].limit, shown.changes[0].old, shown.requested) == (2, 2, False)
    play(loop, journal=journal, run_id="r")
    values = [e.value for e in entries_of(journal, "r") if e.kind == "tuned"]
    assert [(v["old"], v["new"]) for v in values] == [(3, 7), (7, 2)]


def test_a_rewind_keeps_tuned_limits_and_a_resume_raises_them() -> None:
    """A person set them for the run; the option of `resume` is a later change of the same limit."""
    journal = KeepingJournal()
    loop = counting(request_in(journal, max_iterations=2))
    assert play(loop, 1, journal=journal, run_id="r").iterations == 2
    run_virtual(journal.rewind("r", "count/1"))
    assert play(loop, journal=journal, run_id="r").iterations == 2
    result = run_virtual(resume(loop, "r", journal=journal, max_iterations=4))
    assert result.iterations == 4


def test_the_limits_of_a_run_that_was_killed_and_resumed() -> None:
    """A limit that was taken before a kill is in force after it."""
    for at in range(1, 14):
        journal = DyingJournal()
        loop = counting(request_in(journal, max_iterations=1), at=2, until=MaxIterations(6))
        result = _with_kills(journal, loop, [at])
        assert (result.iterations, result.reason) == (2, Reason.MAX_ITERATIONS), at


def _with_kills(journal: DyingJournal, loop: Any, kills: list[int]) -> Result:
    """Run until the end, dying at the append of each number in turn."""
    for at in kills:
        journal.at = at
        try:
            return play(loop, 1, journal=journal, run_id="r", in_doubt="rerun")
        except (asyncio.CancelledError, OwnershipLost):
            journal.at = 0
    return play(loop, 1, journal=journal, run_id="r", in_doubt="rerun")


Changes = dict[int, list[tuple[str, int | None]]]
changes = st.dictionaries(
    st.integers(1, 8),
    st.lists(
        st.tuples(st.sampled_from(["max_iterations", "max_calls"]), st.integers(1, 12)), max_size=2
    ),
    max_size=5,
)


@given(changes=changes, kills=st.lists(st.integers(1, 60), max_size=4))
@settings(max_examples=200)
def test_sequences_of_limits_with_kills(changes: Changes, kills: list[int]) -> None:
    """200 sequences: no iteration and no call beyond the limits in force, and replay finds the stop again.

    I1: iterations stay below the limit in force. I29, I33: at each call, what is settled and reserved is at
    most the cap in force, over all kills.
    """
    journal = DyingJournal()
    limits: dict[str, int] = dict(LIMITS)

    async def act(ctx: Context, number: int) -> None:
        root = ctx.account
        while root.parent is not None:
            root = root.parent
        if root.cap is not None and root.cap.calls is not None:
            assert root.settled.calls + root.reserved.calls <= root.cap.calls
        for place, (key, new) in enumerate(changes.get(number, ())):
            loop = "count" if key == "max_iterations" else ""
            change = {"loop": loop, "key": key, "old": None, "new": new}
            posted = request([change], reason="", who="Ann", at=0.0)
            # The same request after a kill: the first one counts.
            await journal.post("r", replace(posted, path=f"tune/{number:03}-{place}"))
        while len(tuned_ids(ctx)) < sum(len(v) for n, v in changes.items() if n <= number):
            await asyncio.sleep(0.01)

    async def work(value: int, ctx: Context) -> int:
        await act(ctx, value)
        ctx.spend(Usage(calls=1))
        return value + 1

    loop = Loop(
        step(work, reserve=lambda _: Usage(calls=1)),
        lambda _: {"score": 0.5, "passed": False},
        adapt=lambda last: last.output,
        until=MaxIterations(LIMITS["max_iterations"]),
        name="count",
    )

    def played() -> Result:
        budget = Budget(calls=LIMITS["max_calls"])
        return play(loop, 1, journal=journal, run_id="r", budget=budget, in_doubt="rerun")

    for at in kills:
        journal.at = at
        try:
            result = played()
            break
        except (asyncio.CancelledError, OwnershipLost):
            journal.at = 0
    else:
        result = played()
    expected, number = dict(limits), 0
    while number < min(expected.values()):
        number += 1
        expected.update(changes.get(number, ()))
    if not kills:  # a call that a kill interrupted counts twice
        assert result.iterations == number
        assert result.usage.calls == number
    assert result.iterations <= number
    entries = entries_of(journal, "r")
    if result.reason is Reason.MAX_ITERATIONS:
        info = run_virtual(journal.find("r"))
        [recording] = recordings_of(info, entries, loop)
        assert isinstance(recording, Recording), recording
    assert played() == result
    assert entries_of(journal, "r") != [] and surviving(entries)[-1].kind == "ended"


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_iterations": 0}, "max_iterations: 0 is too small"),
        ({"max_iterations": 1001}, "above the ceiling of 1000"),
        ({"max_usd": float("nan")}, "max_usd: nan"),
        ({"max_usd": -1}, "max_usd: -1"),
        ({"timeout": float("inf")}, "timeout: inf"),
        ({"deadline": "tomorrow"}, "deadline: 'tomorrow'"),
        ({"loop": "coutn", "max_iterations": 3}, "did you mean 'count'"),
        ({"max_usd": "clear"}, "max_usd: the run has no such limit"),
        ({"timeout": "clear"}, "timeout: count has no such limit"),
        ({"at_once": 3}, "runs one item or step at a time"),
        ({"max_total_tokens": 0}, "max_total_tokens: 0 is too small"),
        ({"max_effects": True}, "max_effects"),
        ({"max_calls": 1.5}, "max_calls: 1.5"),
        ({"max_effects": "clear"}, "max_effects: the run has no such limit"),
    ],
)
def test_invalid_limits(limits: dict[str, Any], message: str) -> None:
    """Each is one sentence with the name of the limit, and nothing is requested."""
    journal = KeepingJournal()
    play(waiting(), 1, journal=journal, run_id="r")
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        run_virtual(change_limits("r", journal=journal, **limits))
    assert run_virtual(journal.inbox("r")) == []


def test_runs_that_cannot_be_tuned() -> None:
    """An unknown run and an ended one are refused; an ended one says how to continue it."""
    journal = MemoryJournal()
    play(counting(), 1, journal=journal, run_id="r")
    with pytest.raises(RunNotFound):
        run_virtual(change_limits("other", journal=journal, max_iterations=3))
    with pytest.raises(ConfigurationError, match="resume it with a higher limit$"):
        run_virtual(change_limits("r", journal=journal, max_iterations=30))
    play(counting(until=ScoreAtLeast(0.5)), 1, journal=journal, run_id="done")
    with pytest.raises(ConfigurationError, match="it is satisfied, so its limits have no effect$"):
        run_virtual(change_limits("done", journal=journal, max_iterations=30))


def test_a_deadline_condition_is_shown_with_its_text() -> None:
    """Limits in force have their own units: seconds, a date, iterations, calls."""
    journal = KeepingJournal()
    until = MaxIterations(3) | Timeout(60) | Deadline("2099-01-01T00:00:00+00:00")
    play(waiting(until=until), 1, journal=journal, run_id="r", budget=Budget(calls=9))
    shown = run_virtual(change_limits("r", journal=journal)).to_json()
    rows = [(one["loop"], one["key"], one["limit"], one["used"]) for one in shown["limits"]]
    assert ("", "max_calls", 9, 1) in rows
    assert ("count", "max_iterations", 3, 1) in rows
    assert ("count", "deadline", "2099-01-01T00:00:00+00:00", None) in rows
