"""What a resumed run does with the attempts on record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_steps import Ask, World

from loopwright import Loop, MaxIterations, Result, Status, sequence
from loopwright.models import Target, call_model
from loopwright.models.registry import models_of
from loopwright.testing import run_virtual

OTHER = Target("anthropic", "other")


class Crash(BaseException):
    """The process dies."""


class Dying:
    """A journal's log that lets the process die at its n-th entry."""

    def __init__(self, log: Any, left: int) -> None:
        self.log = log
        self.left = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def append(self, entry: Any) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash
        self.log.append(entry)


def crashing(world: World, at: int) -> None:
    """Let the next run die at its n-th entry."""
    real = world.journal.open

    async def opened(*given: Any, **named: Any) -> Any:
        world.journal.open = real
        log = await real(*given, **named)
        return Dying(log, at)

    world.journal.open = opened


def survive(world: World, step: Any, crashes: list[int]) -> Result:
    """Run to the end through crashes at these entries, each time as a new process."""
    for at in crashes:
        crashing(world, at)
        try:
            return world.run(step)
        except Crash:
            world.journal.crash()
            world.restart()
    return world.run(step)


def outcome(result: Result) -> Any:
    return result.status, result.reason, result.output, result.detail


SCRIPTS: list[list[Any]] = [
    ["ok"],
    [{"error": "throttled", "retry_after": 2}, {"error": "transient"}, "ok"],
    [{"text": "half", "finish": "length"}, {"error": "transient"}, "ok"],
    ["", {"error": "unknown_outcome"}, "ok"],
    [{"error": "permanent"}],
    [{"error": "quota"}, "from the other"],
    [{"error": "throttled", "retry_after": 500}, {"error": "transient"}, "from the other"],
    [{"error": "transient"}],
]


@given(st.sampled_from(SCRIPTS), st.lists(st.integers(0, 30), max_size=4))
def test_a_call_ends_the_same_through_any_crashes(script: list[Any], crashes: list[int]) -> None:
    """Whenever the process dies, the resumed call has the result of the uninterrupted one."""
    step = Ask({"max_tokens": 20}, failover=[OTHER])
    whole = World([{"replies": script}])
    expected = outcome(whole.run(step))
    world = World([{"replies": script}])
    assert outcome(survive(world, step, crashes)) == expected
    assert [e.path for e in world.attempts] == [e.path for e in whole.attempts]


@given(st.lists(st.integers(0, 40), max_size=3))
def test_a_script_goes_on_where_the_journal_is(crashes: list[int]) -> None:
    """Rounds that are on record are not answered again: each round gets its own reply."""
    rules = [{"replies": ["one", {"error": "throttled"}, "two", "three", "four"]}]
    step = Loop(Ask(), until=MaxIterations(4), name="loop")
    whole = World(rules).run(step)
    again = survive(World(rules), step, crashes)
    texts = [item.output["text"] for item in again.history]
    assert texts == ["one", "two", "three", "four"]
    assert [i.output for i in again.history] == [i.output for i in whole.history]


@given(st.lists(st.integers(0, 25), max_size=4))
def test_what_may_have_been_billed_is_counted_through_crashes(crashes: list[int]) -> None:
    """Every request that was sent is covered by what the run says it spent."""
    sent: list[int] = []

    class Counting:
        redactor = None

        async def complete(self, request: Any, *, on_text: Any = None) -> Any:
            from loopwright.models import Reply
            from loopwright.records import Usage

            sent.append(1)
            return Reply("ok", usage=Usage(1, 10, 10), model="m", provider="p")

    world = World(Counting())
    result = survive(world, sequence(Ask(), _second()), crashes)
    assert result.usage.calls >= len(sent) - len(crashes)
    assert result.usage.calls >= 2


def _second() -> Ask:
    step = Ask()
    step.name = "second"
    return step


def test_a_suspended_run_goes_on_when_it_is_resumed() -> None:
    """After the wait that was asked for, a resume tries again; before it, the run stays suspended."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 500}, "ok"]}])
    first = world.run(Ask())
    assert first.status is Status.SUSPENDED
    world.restart()
    world.clock.jumped = 300
    early = world.run(Ask())
    assert (early.status, len(world.attempts)) == (Status.SUSPENDED, 1)
    world.restart()
    world.clock.jumped = 501
    done = world.run(Ask())
    assert (done.status, done.output["text"]) == (Status.SATISFIED, "ok")


def test_a_resume_waits_what_is_left_if_that_is_short() -> None:
    """A resume shortly before the moment waits for it instead of suspending again."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 500}, "ok"]}])
    world.run(Ask())
    world.restart()
    world.clock.jumped = 470
    done = world.run(Ask())
    assert done.status is Status.SATISFIED
    assert 29 <= done.seconds <= 31


def test_a_quota_is_tried_again_by_each_resume() -> None:
    """To resume a run that waits for quota is to say that there is some; it may be suspended again."""
    world = World([{"replies": [{"error": "quota"}, {"error": "quota"}, "ok"]}])
    statuses = []
    for _ in range(3):
        statuses.append(world.run(Ask()).status)
        world.restart()
    assert statuses == [Status.SUSPENDED, Status.SUSPENDED, Status.SATISFIED]
    assert len(world.attempts) == 3


def test_a_run_that_is_resumed_often_keeps_its_attempts() -> None:
    """Suspending again and again never uses up the attempts of a call."""
    world = World([{"replies": [{"error": "throttled", "retry_after": 500}] * 8 + ["ok"]}])
    for n in range(8):
        assert world.run(Ask()).status is Status.SUSPENDED
        world.restart()
        world.clock.jumped = 501 * (n + 1)
    assert world.run(Ask()).status is Status.SATISFIED


def test_nobody_waits_twice_for_the_same_moment() -> None:
    """A resumed run does not repeat the waits between attempts that are on record."""
    world = World(
        [{"replies": [{"error": "transient", "retry_after": 40}, "ok"]}, {"replies": ["x"]}]
    )
    step = sequence(Ask(), _second())
    crashing(world, 6)
    with pytest.raises(Crash):
        world.run(step)
    world.journal.crash()
    world.restart()
    assert max(entry.at for entry in world.entries) == 40
    assert world.run(step).seconds == 40


def test_a_changed_question_is_refused() -> None:
    """A recorded answer is not handed to another question."""
    from loopwright.errors import ReplayMismatch

    world = World([{"replies": ["ok"]}])
    crashing(world, 3)
    with pytest.raises(Crash):
        world.run(sequence(Ask(), _second()))
    world.journal.crash()
    with pytest.raises(ReplayMismatch, match="its input changed since it was recorded"):
        world.run(sequence(Ask({"temperature": 1.0}), _second()))


def test_models_are_found_once_for_each_opening() -> None:
    """The place in a script is set when a run is opened, not with every call."""
    seen: list[str] = []
    world = World([{"replies": ["1", "2", "3"]}])

    class Thrice(Ask):
        async def run(self, value: Any, ctx: Any) -> Result:
            from loopwright.models import Message, Request
            from loopwright.records import Reason

            for n in range(3):
                request = Request((Message("user", "x"),), "gpt-4o", "openai")
                reply = await call_model(ctx, f"call-{n}", request)
                seen.append(reply["text"])
            assert models_of(ctx) is world.models
            return Result(Status.SATISFIED, Reason.COMPLETED, "", None)

    run_virtual(world.go(Thrice()))
    assert seen == ["1", "2", "3"]


def test_a_call_that_began_elsewhere_goes_on_there() -> None:
    """Where the first endpoint cooled down, attempts were made at the second; a resume stays there."""
    rules = [{"replies": [{"error": "transient"}, {"error": "transient"}, "ok"]}]
    world = World(rules)
    step = Ask(failover=[OTHER])

    async def cooled() -> Result:
        import asyncio

        request = Ask().asked("x")
        world.models.cool(request, asyncio.get_running_loop().time() + 400)
        return await world.go(step)

    crashing(world, 6)
    with pytest.raises(Crash):
        run_virtual(cooled())
    world.journal.crash()
    world.restart()
    assert world.run(step).output["provider"] == "anthropic"
    assert {record["provider"] for record in world.records} == {"anthropic"}


def test_a_long_pause_suspends_before_anything_is_sent() -> None:
    """A call to an endpoint that cools down for long is not made; the run is suspended until then."""
    world = World([{"replies": ["ok"]}])

    async def cooled() -> Result:
        import asyncio

        world.models.cool(Ask().asked("x"), asyncio.get_running_loop().time() + 400)
        return await world.go(Ask())

    result = run_virtual(cooled())
    assert (result.status, world.records) == (Status.SUSPENDED, [])
    world.restart()
    assert world.run(Ask()).status is Status.SATISFIED


def test_a_failover_list_that_became_shorter_changes_nothing_on_record() -> None:
    """Attempts on record stand, though the endpoint they went to is no longer on the list."""
    world = World([{"replies": [{"error": "quota"}, "from the other"]}])
    crashing(world, 7)
    with pytest.raises(Crash):
        world.run(sequence(Ask(failover=[OTHER]), _second()))
    world.journal.crash()
    world.restart()
    done = world.run(sequence(Ask(), _second()))
    assert done.status is Status.SATISFIED
    assert world.attempts[1].value["text"] == "from the other"
