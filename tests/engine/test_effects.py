"""One effect: look in the journal, ask the gates, reserve, record the intent, act, settle, record."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Entry,
    Evaluation,
    Loop,
    MaxIterations,
    MemoryJournal,
    Reason,
    Result,
    ScoreAtLeast,
    Status,
    Timeout,
    Usage,
    Workflow,
    parallel,
    resume,
    retrying,
    run,
    step,
)
from loopwright.errors import JournalUnavailable, OwnershipLost, ReplayMismatch, StepError
from loopwright.journal import MemoryLog
from loopwright.testing import run_virtual

from .support import (
    DyingJournal,
    KeepingJournal,
    Script,
    SlowJournal,
    echo,
    entries_of,
    inline,
    kinds,
    play,
)

# What is recorded.


def test_an_effect_is_an_intent_and_an_outcome() -> None:
    """Nothing acts before its "started" entry; its "finished" has value, time and fingerprint."""
    journal = KeepingJournal()
    play(Loop(Script(["x"], seconds=2), name="refine", until=MaxIterations(1)), "in",
         journal=journal, run_id="r")  # fmt: skip
    entries = entries_of(journal, "r")
    assert kinds(entries) == [
        ("started", "refine/1/execute"), ("finished", "refine/1/execute"), ("iteration", "refine"),
        ("ended", "refine"), ("ended", ""),
    ]  # fmt: skip
    started, finished = entries[:2]
    assert (started.at, finished.at, finished.seconds, finished.value) == (0, 0, 2, "x")
    assert started.fingerprint == finished.fingerprint
    assert started.fingerprint.endswith(":'in'")
    assert [entry.seq for entry in entries] == [1, 2, 3, 4, 5]


def test_nothing_acts_before_its_intent_is_durable() -> None:
    """Rule 1: the step is called only after the store has acknowledged the intent."""
    journal = SlowJournal()
    seen: list[int] = []

    async def act(value: Any) -> str:
        seen.append(journal.log.durable)
        return "x"

    play(act, journal=journal, run_id="r")
    assert seen == [1]


def test_a_failure_is_recorded_and_raised_again() -> None:
    """A finished effect that failed fails the same way when it is replayed, and is not tried again."""
    execute = Script([StepError("no", kind="transient", retryable=False, retry_after=3.0)])
    journal = MemoryJournal()
    first = play(Loop(execute, name="l"), journal=journal, run_id="r")
    entry = entries_of(journal, "r")[1]
    assert entry.error is not None
    assert (entry.error.kind, entry.error.retryable, entry.error.retry_after) == (
        "transient", False, 3.0,
    )  # fmt: skip
    assert first.history[0].error is not None
    assert first.history[0].error.retry_after == 3.0


def test_a_step_says_what_it_spent() -> None:
    """I32: what a context is told is settled in every account, also when the step then fails."""

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1, usd=0.1))
        ctx.spend(Usage(calls=1))
        if value == "fail":
            raise ValueError
        return "x"

    for value in ("go", "fail"):
        journal = MemoryJournal()
        result = play(Loop(spends, name="l", until=MaxIterations(1)), value,
                      journal=journal, run_id="r")  # fmt: skip
        assert result.usage == result.history[0].usage == Usage(calls=2, usd=0.1)
        assert entries_of(journal, "r")[1].usage == Usage(calls=2, usd=0.1)


def test_a_step_that_cannot_say_what_it_spent_settles_at_what_it_promised() -> None:
    """I32: a call that was reserved and made is never free because nobody could count it."""
    result = play(
        Loop(step(echo, reserve=Usage(calls=1)), until=MaxIterations(9) | Budget(calls=3))
    )
    assert (result.reason, result.iterations, result.usage) == (Reason.BUDGET, 3, Usage(calls=3))


def test_a_step_that_can_say_it_spent_nothing_spends_nothing() -> None:
    """A step with a context that spends nothing, from a cache say, gives its promise back."""

    async def cached(value: Any, ctx: Context) -> str:
        return "x"

    made = step(cached, reserve=lambda value: Usage(calls=1))
    result = play(Loop(made, until=MaxIterations(9) | Budget(calls=3)))
    assert (result.reason, result.usage) == (Reason.MAX_ITERATIONS, Usage())


def test_a_promise_that_cannot_be_made_is_a_failure_of_the_step() -> None:
    """What `reserve` raises is recorded like any other error, not thrown at the caller."""

    def reserve(value: Any) -> Usage:
        raise KeyError("length")

    result = play(Loop(step(echo, reserve=reserve), until=MaxIterations(1)))
    assert result.history[0].error is not None
    assert result.history[0].error.kind == "KeyError"


def test_a_call_that_does_not_fit_is_refused_before_it_is_made() -> None:
    """H24, F20: the worst case is checked before the call, and nothing is recorded as started."""
    journal = MemoryJournal()
    execute = Script(["x"])
    made = Loop(step(execute, reserve=Usage(calls=2)), name="l", guards=Budget(calls=1))
    result = play(made, journal=journal, run_id="r")
    assert (result.reason, execute.calls) == (Reason.BUDGET, [])
    assert result.detail == (
        "the call l/1/execute may take 2 calls and did not fit: 0 of 1 are spent"
    )
    assert kinds(entries_of(journal, "r")) == [("iteration", "l"), ("ended", "l"), ("ended", "")]


def test_outputs_are_normalised_before_anyone_sees_them() -> None:
    """Rule 2: a tuple is a list for the evaluator too, live as in a replay."""
    judge = Script([0.5])
    result = play(Loop(Script([("a", 1)]), judge, until=MaxIterations(1)))
    assert judge.calls == [["a", 1]]
    assert result.output == ["a", 1]


def test_an_evaluation_that_is_an_output_is_recorded_as_json() -> None:
    """A record's output and input are JSON values, also where a step returns an Evaluation."""
    result = play(Loop(Script([Evaluation(0.5)]), adapt=Script([Evaluation(0.25)]),
                       until=MaxIterations(2)))  # fmt: skip
    assert result.output == {"score": 0.5, "passed": None}
    assert result.history[1].input == {"score": 0.25, "passed": None}


# Replay.


def crashed_after(journal: DyingJournal, made: Any, at: int, value: Any = None) -> None:
    """Run until the process dies at an append, and leave the journal ready for a resume."""
    journal.at = at
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(made, value, journal=journal, run_id="r")
    journal.at = 0


def test_a_finished_effect_is_never_repeated() -> None:
    """Section 13: what is on record is handed back; the steps after it are performed."""
    calls: list[str] = []

    def noting(name: str) -> Any:
        async def act(value: Any) -> str:
            calls.append(name)
            return f"{value}{name}"

        return step(act, name=name)

    made = Workflow("w", {"a": noting("a"), "b": noting("b")}, needs={"b": ["a"]})
    journal = DyingJournal()
    crashed_after(journal, made, 2, "x")
    assert calls == ["a"]
    result = play(made, "x", journal=journal, run_id="r")
    assert (result.output, calls) == ("xab", ["a", "b"])


def test_what_was_in_flight_may_run_twice_under_the_same_key() -> None:
    """Section 13: an effect in doubt is performed again and sees a stable idempotency key."""
    keys: list[str] = []

    async def act(value: Any, ctx: Context) -> str:
        keys.append(ctx.idempotency_key)
        await asyncio.sleep(0)
        return "x"

    journal = DyingJournal(before=True)
    crashed_after(journal, act, 2)
    play(act, journal=journal, run_id="r")
    play(act, journal=journal, run_id="other")
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(("options", "status"), [
    ({}, Status.SUSPENDED), ({"in_doubt": "rerun"}, Status.SATISFIED),
])  # fmt: skip
def test_a_step_that_may_not_run_twice_asks_a_person(
    options: dict[str, Any], status: Status
) -> None:
    """A step that is not idempotent and was in flight suspends the run, unless told to run again."""
    sent: list[str] = []

    async def send(value: Any) -> str:
        sent.append(value)
        return "sent"

    journal = DyingJournal(before=True)
    made = step(send, idempotent=False)
    crashed_after(journal, made, 2, "mail")
    result = play(made, "mail", journal=journal, run_id="r", **options)
    assert result.status is status
    if status is Status.SUSPENDED:
        assert (result.reason, len(sent)) == (Reason.NEEDS_ATTENTION, 1)
        assert result.detail == (
            "send was in flight when the process died and may have acted; "
            "say whether to run it again, or mark the step idempotent"
        )
        assert result.request == {"path": "send"}
        assert entries_of(journal, "r")[-1].kind == "suspended"


def test_a_persons_answer_lets_it_run_again() -> None:
    """An "answered" entry at the path of the doubt decides it, and only for that path."""
    journal = DyingJournal(before=True)
    made = step(echo, idempotent=False)
    crashed_after(journal, made, 2, "mail")
    journal._runs["r"].entries.append(Entry("answered", "echo", 0.0, value="rerun"))
    assert play(made, "mail", journal=journal, run_id="r").output == "mail"


def test_a_suspended_run_goes_on_where_it_was() -> None:
    """Suspending records nothing as ended; resuming goes on, with the loop's rounds as they were."""
    sent: list[int] = []

    async def send(value: Any, ctx: Context) -> int:
        sent.append(ctx.iteration)
        return ctx.iteration

    journal = DyingJournal(before=True)
    loop = Loop(step(send, idempotent=False), name="l", until=MaxIterations(3))
    crashed_after(journal, loop, 5)
    held = play(loop, journal=journal, run_id="r")
    assert (held.status, held.iterations, held.output) == (Status.SUSPENDED, 1, 1)
    assert held.loops["l"].status is Status.SUSPENDED
    again = play(loop, journal=journal, run_id="r", in_doubt="rerun")
    assert (again.status, again.iterations, sent) == (Status.EXHAUSTED, 3, [1, 2, 2, 3])


def test_what_was_in_doubt_counts_as_spent() -> None:
    """I33: the reservation of a call whose outcome is not known is spent for good."""

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1))
        return "x"

    made = Loop(
        step(spends, reserve=Usage(calls=1)), name="l", until=MaxIterations(9) | Budget(calls=3)
    )
    journal = DyingJournal(before=True)
    crashed_after(journal, made, 2)
    result = play(made, journal=journal, run_id="r")
    assert (result.reason, result.iterations, result.usage) == (Reason.BUDGET, 2, Usage(calls=3))


# Changes.


def test_a_changed_step_is_refused_by_name() -> None:
    """I41: if code changed since it was recorded, resume refuses and names both versions."""

    async def one(value: Any) -> str:
        return "one"

    async def two(value: Any) -> str:
        return "two"

    def made(act: Any) -> Any:
        return Workflow("w", {"a": act, "b": echo}, needs={"b": ["a"]})

    journal = DyingJournal()
    crashed_after(journal, made(one), 2)
    with pytest.raises(ReplayMismatch, match=r"r: w changed since the run was recorded"):
        play(made(two), journal=journal, run_id="r")
    taken = play(made(two), journal=journal, run_id="r", accept_changes=True)
    assert taken.output == "one"
    accepted = [e for e in entries_of(journal, "r") if e.kind == "accepted"]
    assert [e.path for e in accepted] == ["w/a"]


def test_a_changed_input_of_a_step_is_refused_by_name() -> None:
    """I41: what a step was given is part of its fingerprint."""
    state = {"n": 1}

    async def first(value: Any, ctx: Context) -> Any:
        return await ctx.call("inner", step(echo), state["n"])

    journal = DyingJournal(before=True)
    crashed_after(journal, first, 4)
    state["n"] = 2
    with pytest.raises(ReplayMismatch) as caught:
        play(first, journal=journal, run_id="r")
    assert str(caught.value) == (
        "first/inner: its input changed since it was recorded (1 then, 2 now); "
        "resume with the old version, rewind to before it, or give accept_changes"
    )
    assert caught.value.path == "first/inner"
    assert play(first, journal=journal, run_id="r", accept_changes=True).output == 1


def test_a_changed_step_inside_a_step_is_refused_with_both_fingerprints() -> None:
    """The message tells code from input."""
    state: dict[str, Any] = {"act": step(echo)}

    async def outer(value: Any, ctx: Context) -> Any:
        return await ctx.call("inner", state["act"], 1)

    journal = DyingJournal(before=True)
    crashed_after(journal, outer, 4)
    state["act"] = step(Script([1]))
    with pytest.raises(ReplayMismatch, match="outer/inner: the step's code changed since it was"):
        play(outer, journal=journal, run_id="r")


def test_two_calls_of_one_name_are_refused() -> None:
    """A path names one effect: a second call under the same name would be answered by the first."""

    async def twice(value: Any, ctx: Context) -> Any:
        await ctx.call("vote", step(echo), 1)
        return await ctx.call("vote", step(echo), 2)

    result = play(twice)
    assert result.status is Status.FAILED
    assert result.detail == (
        "twice/vote: the name 'vote' was used by an earlier call of this step; "
        "give each call a name of its own"
    )


# Deadlines and cancellation.


def test_a_deadline_that_passes_while_waiting_for_budget_stops_the_call() -> None:
    """I6: a call that waited for its turn past the deadline is not begun."""

    async def hold(value: Any, ctx: Context) -> str:
        await asyncio.sleep(20)
        return "held"

    second = Script(["x"])
    both = parallel(
        step(hold, name="hold", reserve=Usage(calls=2)),
        step(second, name="second", reserve=Usage(calls=1)),
    )
    loop = Loop(both, name="l", until=Timeout(5), guards=Budget(calls=2))
    result = play(loop)
    assert (result.reason, second.calls, result.seconds) == (
        Reason.TIMEOUT, [], pytest.approx(5),
    )  # fmt: skip


def test_a_turn_that_comes_exactly_at_the_deadline_is_not_taken() -> None:
    """I6: the gates are asked again after waiting, and what was promised is given back."""

    async def hold(value: Any, ctx: Context) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(5)
        return "held"

    second = Script(["x"])
    both = parallel(
        step(hold, name="hold", reserve=Usage(calls=2)),
        step(second, name="second", reserve=Usage(calls=1)),
    )
    result = play(Loop(both, name="l", until=Timeout(5), guards=Budget(calls=2)))
    assert (result.reason, second.calls) == (Reason.TIMEOUT, [])
    assert result.usage.calls <= 2


def test_a_slow_store_does_not_let_a_call_begin_after_the_deadline() -> None:
    """I6: when durability takes longer than the time that is left, the call is not made."""
    act = Script(["x"])
    result = play(Loop(act, until=Timeout(0.5)), journal=SlowJournal(), run_id="r")
    assert (result.reason, act.calls) == (Reason.TIMEOUT, [])


def test_a_branch_cancelled_while_its_intent_is_written_gives_its_promise_back() -> None:
    """I34: a sibling's failure in that moment leaves no reservation behind to wait for."""

    async def fails(value: Any) -> str:
        await asyncio.sleep(0.5)
        raise ValueError("no")

    async def spends(value: Any, ctx: Context) -> str:
        ctx.spend(Usage(calls=1))
        return "x"

    class Later(SlowJournal):
        async def open(self, *args: Any, **options: Any) -> MemoryLog:
            log = await super().open(*args, **options)
            sync, count = log.sync, 0

            def second_is_slow() -> Any:
                nonlocal count
                count += 1
                return sync() if count == 2 else None

            log.sync = second_is_slow  # type: ignore[method-assign]
            return log

    both = parallel(step(fails, name="a"), step(spends, name="b", reserve=Usage(calls=2)))
    loop = Loop(both, on_failure="continue", until=MaxIterations(2), guards=Budget(calls=3))
    result = play(loop, journal=Later(), run_id="r")
    assert (result.reason, result.usage.calls) == (Reason.ALL_FAILED, 1)


def test_a_step_that_exits_is_a_failure_under_a_deadline_too() -> None:
    """SystemExit in a step is recorded; it does not end the event loop."""
    for guards in (None, Timeout(60)):
        result = play(Loop(Script([SystemExit(3)]), guards=guards))
        assert result.history[0].error is not None
        assert result.history[0].error.kind == "SystemExit"


def test_a_clock_that_disagrees_with_the_timer_still_names_the_right_loop() -> None:
    """When a timer fires a hair early, the loop with the nearest deadline is the one that stops."""

    class Early:
        """A clock that is a hair behind the event loop's timers."""

        def monotonic(self) -> float:
            return asyncio.get_running_loop().time() * (1 - 1e-7)

        def wall(self) -> float:
            return 0.0

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(seconds)

    inner = Loop(Script(["x"], seconds=60), name="inner", guards=Timeout(50))
    outer = Loop(inner, name="outer", until=MaxIterations(1), guards=Timeout(5))
    result = play(outer, clock=Early())
    assert (result.reason, result.detail) == (Reason.TIMEOUT, "5 s used")
    assert result.loops["inner"].detail == "5 s used"


async def cancelled_at(
    seconds: float, made: Any, journal: MemoryJournal | None = None, **options: Any
) -> Result:
    """Run a step and ask for its cancellation at a second."""
    journal = journal or MemoryJournal()
    options.setdefault("random", lambda: 1.0)
    task = asyncio.ensure_future(run(made, "in", journal=journal, run_id="r", **options))
    await asyncio.sleep(seconds)
    assert await journal.cancel("r")
    return await task


CANCELLED = {
    "a call": Loop(Script(["x"], seconds=9), name="l", until=MaxIterations(3)),
    "a call with a deadline": Loop(Script(["x"], seconds=9), name="l", guards=Timeout(60)),
    "a pause between attempts": Loop(
        retrying(Script([StepError("no")]), delay=60), name="l", until=MaxIterations(3)
    ),
    "parallel calls": Loop(
        parallel(step(Script(["x"], seconds=9), name="a"), step(Script(["y"], seconds=9), name="b")),
        name="l",
    ),
    "an inner loop": Loop(Loop(Script(["x"], seconds=9), name="inner"), name="l"),
    "a wait for budget": Loop(
        parallel(
            step(Script(["x"], seconds=9), name="a", reserve=Usage(2)),
            step(Script(["y"], seconds=9), name="b", reserve=Usage(2)),
        ),
        name="l", guards=Budget(calls=4),
    ),
    "loops side by side": Loop(
        parallel(
            Loop(Script(["x"], seconds=9), name="i"), Loop(Script(["x"], seconds=9), name="j")
        ),
        name="l",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", CANCELLED)
def test_a_cancelled_run_ends_as_cancelled_wherever_it_is(where: str) -> None:
    """Section 4: cancelling is a result with status cancelled; the round in flight is interrupted."""
    result = run_virtual(cancelled_at(4, CANCELLED[where]))
    assert (result.status, result.reason, result.iterations) == (
        Status.CANCELLED, Reason.CANCELLED, 1,
    )  # fmt: skip
    assert result.detail == "cancelled by a person"
    assert result.history[0].interrupted
    assert result.seconds <= 5


@pytest.mark.parametrize("made", [
    Script(["x"], seconds=9),
    parallel(step(Script(["x"], seconds=9), name="a"), step(Script(["y"], seconds=9), name="b")),
    Workflow("w", {"a": Script(["x"], seconds=9)}),
    Workflow("w", {"a": Script(["x"], seconds=9), "b": Script(["x"], seconds=9)}, at_once=2),
    retrying(Script([StepError("no")]), delay=60),
], ids=["function", "parallel", "workflow", "concurrent workflow", "retrying"])  # fmt: skip
def test_a_cancelled_step_of_any_kind_ends_as_cancelled(made: Any) -> None:
    """The root step may be anything; asking for its end gives a result, not an exception."""
    result = run_virtual(cancelled_at(4, made))
    assert (result.status, result.reason) == (Status.CANCELLED, Reason.CANCELLED)


def test_a_cancelled_run_stays_cancelled() -> None:
    """I3, I40: asking again for a cancelled run returns it; only a rewind opens it."""
    journal = MemoryJournal()
    first = run_virtual(cancelled_at(4, CANCELLED["a call"], journal))
    again = play(CANCELLED["a call"], journal=journal, run_id="r")
    assert again.to_json() == first.to_json()


def test_a_call_that_swallows_its_cancellation_is_the_last_one() -> None:
    """I6: after a cancel no call starts, whatever the one in flight made of it."""

    async def swallows(value: Any) -> str:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            return "still here"
        return "x"

    judge = Script([0.1])
    result = run_virtual(cancelled_at(4, Loop(swallows, judge, name="l")))
    assert (result.status, judge.calls) == (Status.CANCELLED, [])


def test_success_comes_before_a_cancel_of_the_same_moment() -> None:
    """Section 3: a record that satisfies is success although the run was cancelled meanwhile."""

    async def swallows(value: Any) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(9)
        return "good"

    result = run_virtual(cancelled_at(4, Loop(swallows, until=ScoreAtLeast(0) | MaxIterations(1))))
    assert result.reason is Reason.MAX_ITERATIONS


def test_a_cancel_from_inside_a_step_leaves_its_caller_alone() -> None:
    """Cancelling ends the run and nothing else: who awaited it goes on undisturbed."""
    journal = MemoryJournal()

    async def act(value: Any) -> str:
        await journal.cancel("r")
        return "x"

    async def work() -> Any:
        result = await run(Loop(act, name="l"), journal=journal, run_id="r")
        await asyncio.sleep(1)
        await asyncio.sleep(1)
        task = asyncio.current_task()
        assert task is not None
        return result, task.cancelling()

    result, cancelling = run_virtual(work())
    assert (result.status, cancelling) == (Status.CANCELLED, 0)


@pytest.mark.parametrize("hook", ["on_iteration", "on_terminate"])
def test_a_cancel_during_a_hook_ends_as_cancelled_or_as_it_was(hook: str) -> None:
    """I13: a hook that is cut short by a cancel is told once, and the run ends with a result."""
    heard: list[Any] = []

    async def slow(item: Any) -> None:
        heard.append(item)
        await asyncio.sleep(9)

    loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(1), **{hook: slow})
    result = run_virtual(cancelled_at(4, loop))
    assert len(heard) == 1
    assert result.reason is Reason.MAX_ITERATIONS
    more = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9), on_iteration=slow)
    assert run_virtual(cancelled_at(4, more)).status is Status.CANCELLED


@pytest.mark.parametrize("journal", [MemoryJournal, SlowJournal])
@pytest.mark.parametrize("seconds", [1.5, 2.5, 3.5, 4.5])
def test_a_run_whose_task_is_cancelled_in_a_hook_is_interrupted(
    journal: Any, seconds: float
) -> None:
    """A cancellation from outside passes through hooks and through the wait for durability."""
    store = journal()

    async def slow(item: Any) -> None:
        await asyncio.sleep(9)

    async def work() -> None:
        loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9), on_iteration=slow)
        task = asyncio.ensure_future(run(loop, journal=store, run_id="r"))
        await asyncio.sleep(seconds)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.find("r")).status == "interrupted"

    run_virtual(work())


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 3.5, 4.5])
def test_a_cancel_while_the_store_writes_still_ends_as_cancelled(seconds: float) -> None:
    """Section 4: a run that waits for durability when it is cancelled ends with a result."""
    heard: list[Any] = []
    loop = Loop(Script(["x"], seconds=1), name="l", until=MaxIterations(9),
                on_iteration=heard.append)  # fmt: skip
    result = run_virtual(cancelled_at(seconds, loop, SlowJournal()))
    assert result.status is Status.CANCELLED
    assert heard == list(result.history)


def test_a_step_may_end_the_run_it_is_in() -> None:
    """I6: without a journal too, nothing is begun after a cancel and what is in flight is cut."""
    never = Script(["x"])

    async def ends(value: Any, ctx: Context) -> str:
        await asyncio.sleep(1)
        ctx.run.cancel("enough")
        return "x"

    after = play(Workflow("w", {"ends": ends, "never": never}))
    assert (after.status, after.detail, never.calls) == (Status.CANCELLED, "enough", [])
    slow = Script(["x"], seconds=60)
    beside = play(parallel(step(ends, name="ends"), step(slow, name="slow")))
    assert (beside.status, beside.seconds) == (Status.CANCELLED, 1)


@pytest.mark.parametrize("later", [0, 1])
def test_a_loop_that_keeps_nothing_can_be_ended_from_inside(later: float) -> None:
    """I6: the stages of a loop without a journal are not begun after a cancel, and are cut by one."""
    execute = Script(["x"], seconds=2)

    async def adapt(last: Any, ctx: Context) -> str:
        if later:
            asyncio.get_running_loop().call_later(later, ctx.run.cancel)
        else:
            ctx.run.cancel()
        return "next"

    result = play(Loop(execute, adapt=adapt, until=MaxIterations(9)))
    assert (result.status, result.iterations) == (Status.CANCELLED, 2)
    assert (len(execute.calls), result.seconds) == (1 + later, 2 + later)


def test_asking_twice_to_end_a_run_ends_it_once() -> None:
    """The first cancel counts, with its reason; one after the end is nothing."""
    held: list[Any] = []

    async def ends(value: Any, ctx: Context) -> None:
        held.append(ctx.run)
        ctx.run.cancel("first")
        ctx.run.cancel("second")

    assert play(ends).status is Status.SATISFIED  # it was over when it was asked to end
    assert play(Workflow("w", {"ends": ends, "never": echo})).detail == "first"

    async def keeps(value: Any, ctx: Context) -> str:
        held.append(ctx.run)
        return "x"

    result = play(keeps)
    held[-1].cancel()
    assert result.status is Status.SATISFIED


def test_a_turn_that_comes_with_a_cancel_is_not_taken() -> None:
    """I6: whoever waits for budget when the run is cancelled makes no call, in any interleaving."""

    async def ends(value: Any, ctx: Context) -> str:
        await asyncio.sleep(1)
        ctx.run.cancel()
        return "x"

    for seed in range(20):
        second = Script(["x"])
        made = Workflow(
            "w", {"ends": step(ends, name="ends", reserve=Usage(2)),
                  "late": Workflow("late", {"pause": Script(["x"], seconds=0.5), "call": step(
                      second, name="second", reserve=Usage(1))}, needs={"call": ["pause"]})},
            at_once=2,
        )  # fmt: skip
        result = play(made, seed=seed, budget=Budget(calls=2))
        assert (result.status, second.calls) == (Status.CANCELLED, [])


def test_a_run_that_keeps_nothing_can_be_cancelled_from_outside() -> None:
    """Without a journal there is nothing to resume; the cancellation is the caller's to see."""

    async def work() -> None:
        task = asyncio.ensure_future(run(Loop(Script(["x"], seconds=9))))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(work())


def test_a_promise_of_nothing_is_none() -> None:
    """A step whose worst case is nothing, for this input, needs no room in any account."""
    made = step(echo, reserve=lambda value: Usage(calls=1) if value == "dear" else None)
    assert play(made, "cheap", budget=Budget(calls=1)).usage == Usage()
    assert play(made, "dear", budget=Budget(calls=1)).usage == Usage(calls=1)


def test_a_warning_is_given_once() -> None:
    """The same sentence twice is one warning."""

    async def warns(value: Any, ctx: Context) -> None:
        ctx.warn("careful")
        ctx.warn("careful")

    assert play(warns).warnings == ("warns: careful",)


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    """When the end is being written the run is over; cancelling then neither fails nor reopens it."""
    journal = SlowJournal()

    async def work() -> Result:
        task = asyncio.ensure_future(run(echo, "in", journal=journal, run_id="r"))
        await asyncio.sleep(1.5)
        await journal.cancel("r")
        return await task

    result = run_virtual(work())
    assert (result.status, result.output) == (Status.SATISFIED, "in")


def test_a_run_that_is_cancelled_from_outside_can_be_resumed() -> None:
    """Cancelling the task, as a signal handler does, interrupts: nothing ends, a resume goes on."""
    journal = MemoryJournal()
    execute = Script(["x"], seconds=3)
    loop = Loop(execute, name="l", until=MaxIterations(3))

    async def work() -> Result:
        task = asyncio.ensure_future(run(loop, journal=journal, run_id="r"))
        await asyncio.sleep(4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        info = await journal.find("r")
        assert (info.status, info.active) == ("interrupted", 4)
        await asyncio.sleep(1000)
        return await resume(loop, "r", journal=journal)

    result = run_virtual(work())
    assert (result.iterations, len(execute.calls)) == (3, 4)
    assert result.seconds == pytest.approx(10)


def test_time_spent_in_a_pause_that_was_interrupted_counts() -> None:
    """I42: the seconds a run was alive count against its timeout, with or without a call in flight."""
    journal = MemoryJournal()
    loop = Loop(retrying(Script([StepError("no")]), delay=100), name="l", guards=Timeout(10))

    async def work() -> Result:
        task = asyncio.ensure_future(run(loop, journal=journal, run_id="r", random=lambda: 1.0))
        await asyncio.sleep(8)
        task.cancel()
        await asyncio.wait([task])
        return await resume(loop, "r", journal=journal, random=lambda: 1.0)

    result = run_virtual(work())
    assert (result.reason, result.seconds) == (Reason.TIMEOUT, pytest.approx(10))


# Ownership and stores.


def test_a_second_owner_stops_the_first() -> None:
    """I39: after a takeover the first owner performs and writes nothing more."""
    journal = MemoryJournal()
    performed: list[str] = []

    def made(name: str) -> Loop:
        async def act(value: Any) -> str:
            performed.append(name)
            await asyncio.sleep(2)
            return "x"

        return Loop(step(act, name="act"), name="l", until=MaxIterations(3))

    async def work() -> Result:
        first = asyncio.ensure_future(run(made("one"), journal=journal, run_id="r"))
        await asyncio.sleep(3)
        second = await run(made("two"), journal=journal, run_id="r", takeover=True)
        with pytest.raises(OwnershipLost, match="r: another owner took this run over"):
            await first
        return second

    result = run_virtual(work())
    assert result.iterations == 3
    assert performed == ["one", "one", "two", "two"]
    ended = [e.path for e in entries_of(journal, "r") if e.kind == "ended"]
    assert ended == ["l", ""]


def test_a_store_that_fails_is_an_error_of_the_journal() -> None:
    """A full disk raises JournalUnavailable at the caller; it is no failure of a step."""

    class Full(MemoryJournal):
        async def open(self, *args: Any, **options: Any) -> MemoryLog:
            log = await super().open(*args, **options)
            sync = log.sync

            def fails_later() -> None:
                if len(log._run.entries) > 4:
                    raise JournalUnavailable("disk full")
                sync()

            log.sync = fails_later  # type: ignore[method-assign]
            return log

    journal = Full()
    with pytest.raises(JournalUnavailable, match="disk full"):
        play(Loop(echo, name="l"), journal=journal, run_id="r")
    assert run_virtual(journal.find("r")).status == "interrupted"


# Listeners.


def test_listeners_hear_each_entry_once_it_is_durable() -> None:
    """Principle 8: entries are heard in order, each once, and never before the store has them."""
    journal = SlowJournal()
    heard: list[tuple[int, bool]] = []

    def listen(entry: Entry) -> None:
        entries = journal.log._run.entries
        number = entries.index(entry) + 1
        heard.append((number, number <= journal.log.durable))

    many = parallel(*(step(Script(["x"], seconds=n / 3), name=f"s{n}") for n in range(6)))
    play(many, journal=journal, run_id="r", listeners=[listen])
    assert heard == [(n, True) for n in range(1, 14)]


def test_a_listener_that_fails_is_a_warning() -> None:
    """A listener watches; it never steers."""

    def broken(entry: Entry) -> None:
        raise RuntimeError("not listening")

    heard: list[str] = []
    result = play(echo, 1, listeners=[broken, lambda entry: heard.append(entry.kind)])
    assert result.output == 1
    assert [kind for kind in heard if kind != "warned"] == ["started", "finished", "ended"]
    assert "a listener failed on echo: not listening" in result.warnings


def test_a_warning_is_kept_over_a_crash() -> None:
    """I35: what a step warned of before a crash is in the result of the resumed run."""

    async def warns(value: Any, ctx: Context) -> str:
        ctx.warn("careful")
        return "x"

    made = Workflow("w", {"a": warns, "b": inline(lambda value: "y")}, needs={"b": ["a"]})
    whole = play(made)
    assert whole.warnings == ("w/a: careful",)
    for at in range(2, 6):
        journal = DyingJournal()
        crashed_after(journal, made, at)
        assert play(made, journal=journal, run_id="r").warnings == whole.warnings
