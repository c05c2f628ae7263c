"""Virtual time: it jumps, it finds deadlocks, and the same seed gives the same order."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import Loop, LoopwrightError, MaxIterations, Timeout, run
from loopwright.testing import Deadlock, VirtualClock, VirtualLoop, run_virtual

from .support import Script, play


def test_time_jumps_to_the_next_timer() -> None:
    """A sleep of a day takes exactly a day of virtual time."""

    async def work() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    assert run_virtual(work()) == pytest.approx(86_400)


def test_timers_fire_in_order() -> None:
    """Of several sleepers the one with the nearest timer wakes first."""
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await asyncio.sleep(seconds)
        woken.append(seconds)

    async def work() -> None:
        await asyncio.gather(*(sleeper(s) for s in (3, 1, 2)))

    run_virtual(work())
    assert woken == [1, 2, 3]


def test_a_task_that_waits_for_nothing_is_a_deadlock() -> None:
    """When nothing is ready and no timer is set, the error says which task waits where."""

    async def stuck() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"every task waits forever: Task-\d+ waits in .*wait"):
        run_virtual(stuck())
    assert issubclass(Deadlock, LoopwrightError)


class Late(VirtualLoop):
    """A loop that lets a step in a thread continue only when nothing else is ready."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = threading.Event()

    def patience(self) -> float:
        self.idle.set()
        return super().patience()


@pytest.mark.parametrize("limit", [MaxIterations(2), MaxIterations(2) | Timeout(60)])
def test_the_clock_waits_for_a_thread(limit: Any) -> None:
    """A plain function on a busy machine is neither a deadlock, nor does it let a timeout expire."""
    loop = Late()
    made = Loop(lambda value: loop.idle.wait(30), until=limit)
    result = loop.run_until_complete(run(made, None, clock=VirtualClock()))
    loop.close()
    assert (result.output, result.iterations, result.seconds) == (True, 2, 0.0)


def test_the_clock_does_not_wait_forever_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain function that blocks is left behind by its timeout."""
    monkeypatch.setattr("loopwright.testing.clock.PATIENCE", 0.0)
    release = threading.Event()
    made = Loop(lambda value: release.wait(30), until=MaxIterations(1) | Timeout(60))
    result = run_virtual(run(made, None, clock=VirtualClock()))
    release.set()
    assert (result.reason.value, result.seconds) == ("timeout", 60.0)


class Opaque(Coroutine[Any, Any, None]):
    """A coroutine without a frame, as compiled ones are."""

    def __init__(self) -> None:
        self.inner = asyncio.sleep(1)

    def __await__(self) -> Generator[Any, Any, None]:
        return self.inner.__await__()

    def send(self, value: Any) -> Any:
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self.inner.throw(*error)

    def close(self) -> None:
        self.inner.close()


def test_a_deadlock_can_name_any_task_and_none() -> None:
    """The description of who waits is total: no task, one not begun, one that shows no frame."""
    loop = VirtualLoop()
    try:
        assert loop.waiting() == "there is no task"
        late = loop.create_task(asyncio.sleep(1), name="late")
        opaque = loop.create_task(Opaque(), name="opaque")
        assert re.fullmatch(
            r"late waits in sleep \(line \d+\); opaque waits at an unknown place", loop.waiting()
        )
        loop.run_until_complete(asyncio.wait([late, opaque]))
    finally:
        loop.close()


@given(st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_order(seed: int) -> None:
    """A shuffled order can be repeated from its seed."""

    async def order() -> list[int]:
        ran: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(0)
            ran.append(number)

        await asyncio.gather(*(one(n) for n in range(8)))
        return ran

    assert run_virtual(order(), seed=seed) == run_virtual(order(), seed=seed)


def test_seeds_explore_more_than_one_order() -> None:
    """Different seeds give different interleavings; no seed keeps the order of asyncio."""

    async def order() -> tuple[int, ...]:
        ran: list[int] = []

        async def one(number: int) -> None:
            await asyncio.sleep(0)
            ran.append(number)

        await asyncio.gather(*(one(n) for n in range(5)))
        return tuple(ran)

    assert len({run_virtual(order(), seed=seed) for seed in range(20)}) > 10
    assert run_virtual(order()) == (0, 1, 2, 3, 4)


def test_a_check_then_act_race_is_found_by_some_seed() -> None:
    """Shuffling reaches the interleaving in which two tasks both pass a check."""

    async def race() -> int:
        room, spent = 1, 0

        async def one() -> None:
            nonlocal room, spent
            if room:
                await asyncio.sleep(0)
                room -= 1
                spent += 1

        async def late() -> None:
            await asyncio.sleep(0)
            await one()

        await asyncio.gather(one(), late())
        return spent

    assert {run_virtual(race(), seed=seed) for seed in range(30)} == {1, 2}


def test_what_swallows_its_cancellation_does_not_hold_the_end() -> None:
    """A task that will not go is left behind; `run_virtual` returns all the same."""

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def work() -> str:
        tasks.append(asyncio.ensure_future(stubborn()))
        await asyncio.sleep(1)
        return "done"

    tasks: list[asyncio.Task[None]] = []
    assert run_virtual(work()) == "done"
    assert not tasks[0].done()


def test_what_is_left_at_the_end_is_cancelled_and_cleans_up() -> None:
    """A task that still runs at the end gets its cancellation and the turns to clean up."""
    cleaned: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            cleaned.append("tidy")

    async def work() -> None:
        tasks.append(asyncio.ensure_future(tidy()))
        await asyncio.sleep(1)

    tasks: list[asyncio.Task[None]] = []
    run_virtual(work())
    assert cleaned == ["tidy"]


def test_the_wall_clock_can_be_set_without_touching_the_monotonic_one() -> None:
    """A jump moves the wall clock and leaves virtual seconds as they are."""

    async def work() -> None:
        clock = VirtualClock(1000.0)
        await clock.sleep(5)
        assert (clock.monotonic(), clock.wall()) == (5, 1005)
        clock.jump(-3600)
        assert (clock.monotonic(), clock.wall()) == (5, 1005 - 3600)

    run_virtual(work())


def test_a_run_in_a_virtual_loop_has_virtual_seconds() -> None:
    """Without a clock of its own a run takes the time of the loop that it runs in."""
    result = play(Loop(Script(["text"], seconds=1800), until=MaxIterations(2) | Timeout(7200)))
    assert result.seconds == pytest.approx(3600)


def test_a_virtual_loop_is_built_on_the_ready_queue_of_asyncio() -> None:
    """Shuffling needs asyncio's private queue and turn; this fails when a Python version drops it."""
    loop = VirtualLoop(1)
    try:
        assert len(loop._ready) == 0
        assert callable(asyncio.SelectorEventLoop._run_once)  # type: ignore[attr-defined]
    finally:
        loop.close()


def test_run_virtual_hands_on_what_the_coroutine_raises() -> None:
    """An error of the coroutine comes out as it is."""

    async def work() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        run_virtual(work())


def test_nothing_is_read_from_a_clock_outside_of_a_loop() -> None:
    """A virtual clock belongs to the loop that runs."""
    with pytest.raises(RuntimeError, match="no running event loop"):
        VirtualClock().monotonic()


def test_a_run_may_be_given_a_virtual_clock() -> None:
    """A clock that is passed is the one that a run sleeps and measures by."""

    async def work() -> float:
        result = await run(
            Loop(Script([1], seconds=2), until=MaxIterations(3)), clock=VirtualClock()
        )
        return result.seconds

    assert run_virtual(work()) == pytest.approx(6)
