"""Crash schedules: a process that dies at any journal write, resumed, gives the same result."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Budget,
    Condition,
    Context,
    Loop,
    MaxIterations,
    NoImprovement,
    Result,
    ScoreAtLeast,
    Timeout,
    Usage,
    Workflow,
    fallback,
    parallel,
    retry,
    run,
    sequence,
    step,
)
from loopwright.errors import OwnershipLost, StepError
from loopwright.testing import run_virtual

from .support import DyingJournal, Script, entries_of, examples, play


class World:
    """What outlives every crash: the ledger of effects that were really performed."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.ledger: list[str] = []
        self.seconds = seconds

    def effect(self, name: str, answer: Any, *, seconds: float = 1.0, fails: int = 0) -> Any:
        """Return a step that notes each performance; its first `fails` paths' attempts fail."""

        async def act(value: Any, ctx: Context) -> Any:
            self.ledger.append(ctx.path)
            if self.seconds:
                await asyncio.sleep(seconds * self.seconds)
            ctx.spend(Usage(calls=1, input_tokens=10))
            if fails and ctx.path.endswith(tuple(f"attempt-{n}" for n in range(1, fails + 1))):
                raise StepError("not yet")
            return answer(value) if callable(answer) else answer

        return step(act, name=name, reserve=Usage(calls=1, input_tokens=20))

    def program(self) -> Workflow:
        """Return 30 effects: nested loops, parallel branches, retries, a fallback, a failed round."""
        inner = Loop(
            self.effect("write", lambda value: f"{value}+"), self.effect("rate", _rate),
            self.effect("mend", lambda last: last.output + "~"), name="inner",
            until=ScoreAtLeast(0.9) | MaxIterations(2),
        )  # fmt: skip
        branches = parallel(
            self.effect("left", "L", seconds=3), sequence(self.effect("mid", "M"), inner, name="s"),
            fallback(
                retry(self.effect("bad", "never", fails=9), attempts=2, delay=0),
                self.effect("good", "G", seconds=2), name="plan",
            ),
            name="branches",
        )  # fmt: skip
        outer = Loop(
            branches, self.effect("judge", _judge), self.effect("adapt", lambda last: "again"),
            name="outer", until=NoImprovement(2) | ScoreAtLeast(0.95),
            guards=Budget(calls=200) | Timeout(10_000), on_failure="continue",
        )  # fmt: skip
        return Workflow(
            "w",
            {"first": self.effect("first", "F"), "outer": outer,
             "second": self.effect("second", 2), "third": self.effect("third", 3),
             "beside": self.effect("beside", "B", seconds=2), "last": self.effect("last", "Z")},
            needs={"outer": ["first"], "last": ["outer", "beside"]}, at_once=2,
        )  # fmt: skip


def _rate(text: str) -> float:
    return min(1.0, len(text) / 10)


def _judge(output: dict[str, Any]) -> float:
    return 0.5


def whole(result: Result, *, timed: bool) -> Any:
    """Return all of a result as JSON, without what a crash may change: times, if they pass."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if not (timed and k == "seconds")}
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(result.to_json())


def in_flight(journal: DyingJournal) -> int:
    """Return how many effects were begun and have no outcome on record."""
    open_paths: set[str] = set()
    for entry in entries_of(journal, "r"):
        if entry.kind == "started":
            open_paths.add(entry.path)
        elif entry.kind == "finished":
            open_paths.discard(entry.path)
    return len(open_paths)


def live_once(world: World, journal: DyingJournal) -> Result | None:
    """Run until the end or the next death."""
    try:
        return play(world.program(), "in", journal=journal, run_id="r", random=lambda: 0.5)
    except (asyncio.CancelledError, OwnershipLost):
        return None


def reference(seconds: float) -> tuple[Any, World, int]:
    """Return the uninterrupted run: its result, its effects and its journal writes."""
    world, journal = World(seconds), DyingJournal()
    result = live_once(world, journal)
    assert result is not None
    return whole(result, timed=seconds > 0), world, journal.appended


@pytest.mark.parametrize("seconds", [0.0, 1.0], ids=["at once", "timed"])
@pytest.mark.parametrize("before", [True, False], ids=["before the write", "after the write"])
def test_a_crash_at_every_write_gives_the_same_result(seconds: float, before: bool) -> None:
    """I33, I35, I36, I37: same result; what is paid twice was in flight; nothing goes uncounted."""
    expected, once, writes = reference(seconds)
    assert len(once.ledger) >= 30
    assert max(Counter(once.ledger).values()) == 1
    for at in range(1, writes + 1):
        world, journal = World(seconds), DyingJournal(at, before=before)
        assert live_once(world, journal) is None
        doubtful, usage = in_flight(journal), len(world.ledger)
        journal.at = 0
        result = live_once(world, journal)
        assert result is not None
        again = len(world.ledger) - len(set(world.ledger))
        assert set(world.ledger) == set(once.ledger)
        assert again <= doubtful
        found = whole(result, timed=seconds > 0)
        spent = found["usage"]["calls"]
        assert len(world.ledger) <= spent <= len(once.ledger) + doubtful
        assert spent >= usage
        assert uncounted(found) == uncounted(expected)


def uncounted(data: Any) -> Any:
    """Return a result without its usages: a call in doubt is counted, so they may differ."""
    if isinstance(data, dict):
        return {k: uncounted(v) for k, v in data.items() if not k.startswith("usage")}
    return [uncounted(v) for v in data] if isinstance(data, list) else data


def test_without_doubt_the_usage_is_the_same_too() -> None:
    """I35: where nothing was in flight, a crash leaves not even a trace in the figures."""
    expected, _, writes = reference(0.0)
    same = 0
    for at in range(1, writes + 1):
        world, journal = World(), DyingJournal(at)
        live_once(world, journal)
        if in_flight(journal):
            continue
        journal.at = 0
        result = live_once(world, journal)
        assert result is not None
        assert whole(result, timed=False) == expected
        same += 1
    assert same > writes / 4


@examples(0.3)
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=8), st.booleans())
def test_any_sequence_of_crashes_gives_the_same_result(
    deaths: list[tuple[int, bool]], timed: bool
) -> None:
    """I33, I35: dying again and again, anywhere, changes nothing but what was counted in doubt."""
    seconds = 1.0 if timed else 0.0
    expected, once, _ = reference(seconds)
    world, journal = World(seconds), DyingJournal()
    result = None
    lost = 0
    for at, before in deaths:
        journal.at, journal.before = at, before
        result = live_once(world, journal)
        if result is not None:
            break
        lost += in_flight(journal)
    journal.at = 0
    result = result or live_once(world, journal)
    assert result is not None
    assert uncounted(whole(result, timed=timed)) == uncounted(expected)
    assert len(world.ledger) <= result.usage.calls <= len(once.ledger) + lost


@pytest.mark.parametrize("limits", [Timeout(5), Budget(calls=3)], ids=str)
def test_a_crash_between_a_cut_round_and_its_end_ends_the_same_way(limits: Condition) -> None:
    """I35: what cut a round short is on record; a resumed loop does not begin another round."""

    def made() -> Any:
        async def slow(value: Any, ctx: Context) -> str:
            ctx.spend(Usage(calls=1))
            await asyncio.sleep(2)
            return "x"

        paid = step(slow, name="s", reserve=Usage(calls=1))
        inner = Loop(paid, name="inner", until=MaxIterations(9))
        return Loop(inner, name="outer", until=MaxIterations(9), guards=limits)

    journal = DyingJournal()
    expected = whole(play(made(), journal=journal, run_id="r"), timed=True)
    writes = journal.appended
    for at in range(writes - 4, writes + 1):
        journal = DyingJournal(at)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            play(made(), journal=journal, run_id="r")
        journal.at = 0
        result = play(made(), journal=journal, run_id="r")
        assert uncounted(whole(result, timed=True)) == uncounted(expected)


def test_a_crash_while_it_is_being_cancelled_leaves_it_cancelled() -> None:
    """I35: a run that was cancelled and died before it could say so ends as cancelled."""

    def made() -> Any:
        return Loop(Loop(_slow, name="inner"), name="outer")

    async def cancelled(journal: DyingJournal) -> Result | None:
        task = asyncio.ensure_future(run(made(), journal=journal, run_id="r"))
        await asyncio.sleep(1)
        await journal.cancel("r")
        await asyncio.wait([task])
        return task.result()

    journal = DyingJournal()
    expected = run_virtual(cancelled(journal))
    assert expected is not None
    for at in range(3, journal.appended + 1):
        dying = DyingJournal(at)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            run_virtual(cancelled(dying))
        dying.at = 0
        again = play(made(), journal=dying, run_id="r")
        assert (again.status, again.iterations) == (expected.status, 1)
        assert again.loops["inner"].iterations == 1


async def _slow(value: Any) -> None:
    await asyncio.sleep(60)


def test_a_resumed_round_remembers_when_it_began_and_what_came_before() -> None:
    """I35: context and times of a round that was begun before a crash are what they would have been."""
    seen: list[Any] = []

    def made() -> Loop:
        async def execute(value: Any, ctx: Context) -> Any:
            await asyncio.sleep(1)
            return [ctx.iteration, value]

        async def adapt(last: Any, ctx: Context) -> Any:
            await asyncio.sleep(2)
            seen.append(("adapt", ctx.iteration, len(ctx.history), ctx.input))
            return last.number

        async def evaluate(output: Any, ctx: Context) -> float:
            await asyncio.sleep(3)
            seen.append(("evaluate", ctx.iteration, len(ctx.history), ctx.last and ctx.last.output))
            return 0.1

        return Loop(execute, evaluate, adapt, name="l", until=MaxIterations(3))

    journal = DyingJournal()
    expected = play(made(), "in", journal=journal, run_id="r")
    told, writes = list(seen), journal.appended
    for at in range(1, writes + 1):
        seen.clear()
        journal = DyingJournal(at)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            play(made(), "in", journal=journal, run_id="r")
        journal.at = 0
        result = play(made(), "in", journal=journal, run_id="r")
        assert list(dict.fromkeys(map(repr, seen))) == [repr(item) for item in told]
        assert result.to_json() == expected.to_json()


def test_a_loop_inside_an_ended_one_is_still_in_the_result() -> None:
    """I35: loops of rounds that are on record are in the result in the order in which they ended."""

    def made() -> Any:
        one = Loop(_quick, name="one", until=MaxIterations(1))
        two = Loop(_quick, name="two", until=MaxIterations(1))
        return Loop(
            parallel(one, sequence(two, one, name="s")), name="outer", until=MaxIterations(2)
        )

    journal = DyingJournal()
    expected = play(made(), journal=journal, run_id="r")
    for at in range(1, journal.appended + 1):
        dying = DyingJournal(at)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            play(made(), journal=dying, run_id="r")
        dying.at = 0
        result = play(made(), journal=dying, run_id="r")
        assert list(result.loops) == list(expected.loops)
        assert result.to_json() == expected.to_json()


async def _quick(value: Any) -> str:
    return "x"


def test_what_ran_beside_a_failure_is_still_in_the_result() -> None:
    """I35: the outputs of steps that were done before a sibling failed come back with a resume."""

    def made() -> Workflow:
        return Workflow(
            "w",
            {
                "bad": step(Script([StepError("no")], seconds=3), name="bad"),
                "good": step(Script(["G"], seconds=1), name="good"),
            },
            at_once=2,
        )

    journal = DyingJournal()
    expected = play(made(), journal=journal, run_id="r")
    assert expected.steps == {"good": "G"}
    for at in range(1, journal.appended + 1):
        dying = DyingJournal(at)
        with pytest.raises((asyncio.CancelledError, OwnershipLost)):
            play(made(), journal=dying, run_id="r")
        dying.at = 0
        result = play(made(), journal=dying, run_id="r")
        assert result.steps == expected.steps
        assert result.detail == expected.detail
