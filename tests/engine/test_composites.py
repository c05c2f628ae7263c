"""Steps made of steps: sequence, parallel, fallback."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loopwright import (
    Loop,
    MemoryJournal,
    Reason,
    Result,
    Status,
    Workflow,
    fallback,
    parallel,
    retry,
    run,
    sequence,
    step,
    with_timeout,
)
from loopwright.engine.step import CompositeStep
from loopwright.errors import ConfigurationError, StepError
from loopwright.testing import run_virtual

from .support import (
    ERROR,
    Script,
    echo,
    entries_of,
    exhausted,
    inline,
    named,
    play,
    satisfied,
    scripted,
)

# Sequence.


def test_a_sequence_hands_each_output_to_the_next() -> None:
    """Steps run one after the other; the last output is the output."""
    result = play(sequence(inline(lambda v: v + "a"), inline(lambda v: v + "b")), "x")
    assert (result.output, result.status, result.reason) == (
        "xab", Status.SATISFIED, Reason.COMPLETED,
    )  # fmt: skip
    assert result.detail == "sequence completed"


def test_a_sequence_is_exhausted_if_a_part_is() -> None:
    """No success is silent about a loop that was not satisfied; what follows is run all the same."""
    result = play(sequence(exhausted("one"), echo, satisfied("two")), "x")
    assert (result.status, result.reason, result.output) == (
        Status.EXHAUSTED, Reason.MAX_ITERATIONS, "output 1.0",
    )  # fmt: skip
    good = play(sequence(satisfied("one"), echo), "x")
    assert (good.status, good.reason) == (Status.SATISFIED, Reason.CONDITION_MET)


def test_a_sequence_ends_at_the_first_failure() -> None:
    """A failed step, or a required loop that is not satisfied, fails the whole."""
    after = Script(["x"])
    broken = play(sequence(named("a", StepError("no")), after))
    assert (broken.status, broken.detail, after.calls) == (
        Status.FAILED, "sequence/a: no", [],
    )  # fmt: skip
    short = play(sequence(exhausted("one", required=True), after))
    assert short.detail == ("sequence/one: sequence/one is required, but 1 of 1 iterations used")
    failed = play(sequence(scripted([ERROR], name="one"), after))
    assert failed.detail == "sequence/one: iteration 1: execute: it broke"
    assert after.calls == []


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a-1", "a-2"]),
        (["a", "a", "a-1"], ["a-2", "a-3", "a-1"]),
        (["a/b", "a-b"], ["a-b-1", "a-b-2"]),
    ],
)
def test_parts_of_one_name_are_numbered_and_never_share_a_path(
    names: list[str], parts: list[str]
) -> None:
    """Section 13: a path names one effect, so equal names are told apart."""
    journal = MemoryJournal()
    result = play(parallel(*(named(name, number) for number, name in enumerate(names))),
                  journal=journal, run_id="r")  # fmt: skip
    assert result.output == dict(zip(parts, range(len(names)), strict=True))
    paths = [e.path for e in entries_of(journal, "r") if e.kind == "finished"]
    assert sorted(paths) == sorted(f"parallel/{part}" for part in parts)


@pytest.mark.parametrize("make", [sequence, parallel, fallback])
def test_steps_made_of_no_steps_are_refused(make: Any) -> None:
    """I10: an empty list of steps cannot mean anything."""
    with pytest.raises(ConfigurationError, match="give at least one step"):
        make()


# Parallel.


def test_parallel_steps_run_at_once_on_the_same_input() -> None:
    """The output is an object of outputs by name, in written order, after the slowest."""
    a, b = Script(["A"], seconds=3), Script(["B"], seconds=1)
    result = play(parallel(step(a, name="a"), step(b, name="b")), "in")
    assert (result.output, result.seconds) == ({"a": "A", "b": "B"}, 3)
    assert list(result.output) == ["a", "b"]
    assert (a.calls, b.calls) == (["in"], ["in"])


def test_at_once_bounds_how_many_run() -> None:
    """Six calls of a second each, two at a time, take three seconds."""
    most = now = 0

    async def act(value: Any) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    result = play(parallel(*(step(act, name=f"s{n}") for n in range(6)), at_once=2))
    assert (most, result.seconds) == (2, 3)
    with pytest.raises(ConfigurationError, match="parallel: at_once: 0 is too small"):
        parallel(echo, at_once=0)


def test_the_first_failure_cancels_the_other_branches() -> None:
    """What is in flight is cancelled and what waits is not begun; the failure is the whole's."""
    cleaned: list[str] = []

    async def slow(value: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("slow")

    never = Script(["x"])
    result = play(parallel(slow, named("bad", StepError("no"), seconds=1), never, at_once=2))
    assert (result.detail, cleaned, never.calls, result.seconds) == (
        "parallel/bad: no", ["slow"], [], 1,
    )  # fmt: skip


def test_of_several_failures_the_earliest_branch_is_reported() -> None:
    """Two branches that fail at the same moment: the one written first, in any interleaving."""
    made = parallel(named("a", StepError("first"), seconds=1),
                    named("b", StepError("second"), seconds=1))  # fmt: skip
    details = {play(made, seed=seed).detail for seed in range(10)}
    assert details <= {"parallel/a: first", "parallel/b: second"}
    assert play(made).detail == "parallel/a: first"


def test_a_parallel_step_is_exhausted_if_a_branch_is() -> None:
    """One branch that is not satisfied shows in the status of all."""
    result = play(parallel(satisfied("a"), exhausted("b")))
    assert (result.status, result.output) == (
        Status.EXHAUSTED, {"a": "output 1.0", "b": "output 0.1"},
    )  # fmt: skip


# Fallback.


def test_a_fallback_tries_in_order_until_one_is_satisfied() -> None:
    """F4: the first strategy is tried first, every one is tried, and none after success."""
    tried: list[str] = []

    def strategy(name: str, good: bool) -> Any:
        async def act(value: Any) -> str:
            tried.append(name)
            if not good:
                raise StepError("no")
            return name

        return step(act, name=name)

    result = play(
        fallback(strategy("quick", False), strategy("detailed", True), strategy("x", True))
    )
    assert (tried, result.output, result.status) == (
        ["quick", "detailed"], "detailed", Status.SATISFIED,
    )  # fmt: skip


def test_a_fallback_without_success_gives_the_best_of_the_exhausted() -> None:
    """The highest score wins, the earlier one on ties; a failed one is no candidate."""
    result = play(fallback(exhausted("a", 0.2), exhausted("b", 0.6), exhausted("c", 0.6),
                           named("d", StepError("no"))))  # fmt: skip
    assert (result.status, result.output) == (Status.EXHAUSTED, "output 0.6")
    plain = play(fallback(exhausted("a", None), exhausted("b", None)))
    assert plain.status is Status.EXHAUSTED


def test_a_fallback_of_which_all_fail_says_how() -> None:
    """The failure lists every strategy with its own; a required loop counts as failed."""
    result = play(fallback(named("a", StepError("one")), exhausted("b", required=True)))
    assert result.status is Status.FAILED
    assert result.detail == (
        "fallback: every strategy failed: a: one; "
        "b: fallback/b is required, but 1 of 1 iterations used"
    )


# All of them.


def test_composites_have_fingerprints_of_their_parts() -> None:
    """I41: another part, order or figure is another fingerprint."""
    a, b = named("a", 1), step(inline(lambda v: v).function, name="b")
    made = [
        sequence(a, b), sequence(b, a), sequence(a), parallel(a, b), fallback(a, b),
        retry(a), retry(a, attempts=5), with_timeout(a, 3), retry(b),
    ]  # fmt: skip
    assert len({m.fingerprint for m in made}) == len(made)
    assert sequence(a, b).fingerprint == sequence(a, b).fingerprint
    assert all(isinstance(m, CompositeStep) for m in made)


def test_loops_are_counted_through_every_kind_of_step() -> None:
    """Section 12: depth is that of the deepest part; a step that says nothing of its parts has none."""
    one = Loop(echo, name="one")
    two = Loop(sequence(echo, parallel(fallback(retry(with_timeout(one, 5))))), name="two")
    assert (one.depth, two.depth, Workflow("w", {"a": echo, "b": two}).depth) == (1, 2, 2)
    assert (CompositeStep().depth, sequence(echo).depth) == (0, 0)


def test_composites_nest_in_a_workflow() -> None:
    """A composite is a step like any other."""
    made = Workflow("w", {"s": sequence(echo, echo), "p": parallel(echo)}, needs={"p": ["s"]})
    assert play(made, 1).output == {"echo": 1}


def test_a_second_cancellation_does_not_lose_the_branches() -> None:
    """A parallel step that is cancelled waits for its branches to clean up before it goes."""
    cleaned: list[str] = []

    async def tidy(value: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            cleaned.append("tidy")

    async def work() -> Result | None:
        task = asyncio.ensure_future(run(parallel(tidy, echo)))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return None

    run_virtual(work())
    assert cleaned == ["tidy"]
