"""Effects on record: replayed, in doubt, changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Budget,
    Context,
    Loop,
    MaxIterations,
    Reason,
    Status,
    Timeout,
    Usage,
    Workflow,
    step,
)
from loopwright.errors import OwnershipLost, ReplayMismatch
from loopwright.journal import Entry

from .support import (
    DyingJournal,
    Script,
    crashed_after,
    echo,
    entries_of,
    play,
)

# RecordedRun.


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
        assert result.request == {"path": "send", "kind": "doubt", "step": "send"}
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
    assert (result.reason, result.iterations, result.usage) == (
        Reason.BUDGET,
        2,
        Usage(calls=3, estimated=1),
    )


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
    assert [e.path for e in accepted] == ["", "w/a"]  # the code of the whole, and of the step


def test_accepted_changes_persist() -> None:
    """What was accepted at one resume is not asked for at the next; another change is."""

    def made(word: str) -> Any:
        if word == "one":

            async def act(value: Any) -> str:
                return "one"
        elif word == "two":

            async def act(value: Any) -> str:
                return "two"
        else:

            async def act(value: Any) -> str:
                return "three" + word

        return Workflow("w", {"a": act, "b": echo, "c": echo}, needs={"b": ["a"], "c": ["b"]})

    journal = DyingJournal()
    crashed_after(journal, made("one"), 2)
    journal.at = 4
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(made("two"), journal=journal, run_id="r", accept_changes=True)
    journal.at = 0
    with pytest.raises(ReplayMismatch, match="r: w changed since the run was recorded"):
        play(made("three"), journal=journal, run_id="r")
    assert play(made("two"), journal=journal, run_id="r").output == "one"


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


def test_a_changed_step_inside_a_step_is_refused_by_name() -> None:
    """The message tells code from input."""
    state: dict[str, Any] = {"act": step(echo)}

    async def outer(value: Any, ctx: Context) -> Any:
        return await ctx.call("inner", state["act"], 1)

    journal = DyingJournal(before=True)
    crashed_after(journal, outer, 4)
    state["act"] = step(Script([1]))
    with pytest.raises(
        ReplayMismatch, match="outer/inner: the function Script changed since it was"
    ):
        play(outer, journal=journal, run_id="r")


def test_two_calls_of_one_name_are_refused() -> None:
    """A path names one effect: a second call under the same name would be answered by the first."""

    async def twice(value: Any, ctx: Context) -> Any:
        await ctx.call("vote", step(echo), 1)
        return await ctx.call("vote", step(echo), 2)

    result = play(twice)
    assert result.status is Status.FAILED
    assert result.detail == (
        "twice/vote: an earlier call of this step is already named 'vote'; "
        "use another name for each call"
    )


def test_a_wait_for_budget_counts_for_the_loop_and_not_for_the_call() -> None:
    """I42: a loop began when it asked for its first call, also when it is resumed; the call later."""

    async def hold(value: Any, ctx: Context) -> str:
        await asyncio.sleep(10)
        return "held"

    def made() -> Workflow:
        slow = step(Script(["x"], seconds=20), name="slow", reserve=Usage(calls=1))
        inner = Loop(slow, name="inner", until=Timeout(15))
        held = step(hold, reserve=Usage(calls=2))
        return Workflow("w", {"hold": held, "inner": inner}, at_once=2)

    journal = DyingJournal(4)
    with pytest.raises((asyncio.CancelledError, OwnershipLost)):
        play(made(), journal=journal, run_id="r", budget=Budget(calls=2))
    started = entries_of(journal, "r")[3]
    assert (started.path, started.at, started.seconds) == ("w/inner/1/execute", 0, 10)
    journal.at = 0
    result = play(made(), journal=journal, run_id="r", budget=Budget(calls=2))
    assert result.loops["inner"].reason is Reason.TIMEOUT
    assert result.seconds == pytest.approx(15)
    quick = Workflow(
        "w",
        {"hold": step(hold, reserve=Usage(calls=2)), "b": step(echo, reserve=Usage(calls=1))},
        at_once=2,
    )
    whole = DyingJournal()
    play(quick, journal=whole, run_id="r", budget=Budget(calls=2))
    finished = next(
        e for e in entries_of(whole, "r") if e.kind == "finished" and e.path.endswith("b")
    )
    assert (finished.at, finished.seconds) == (10, 0)
