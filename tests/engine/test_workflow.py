"""Workflows: named steps with dependencies, run as one step."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import (
    Context,
    Loop,
    MaxIterations,
    Reason,
    ScoreAtLeast,
    Status,
    Workflow,
    run,
    step,
)
from loopwright.errors import ConfigurationError, StepError
from loopwright.testing import run_virtual

from .support import Script, echo, examples, inline, play, scripted


def append(letter: str) -> Any:
    """Return a step that appends a letter to its input's text."""
    return inline(lambda value: f"{value}{letter}")


def test_steps_run_in_written_order_moved_later_by_their_needs() -> None:
    """The same document always runs in the same order; needs only ever delay."""
    ran: list[str] = []

    def noting(name: str) -> Any:
        return inline(lambda value: ran.append(name))

    made = Workflow("w", {n: noting(n) for n in "abcd"}, needs={"a": ["c"], "d": ["b"]}, output="d")
    play(made)
    assert ran == ["b", "c", "a", "d"]
    assert made.order == ["b", "c", "a", "d"]


def test_a_step_is_given_what_it_needs() -> None:
    """No need: the workflow's input; one: that output; several: an object of outputs by name."""
    made = Workflow(
        "w",
        {"a": append("a"), "b": append("b"), "one": append("!"), "two": inline(lambda v: v)},
        needs={"one": ["a"], "two": ["a", "b"]},
    )
    result = play(made, "x")
    assert result.steps == {"a": "xa", "b": "xb", "one": "xa!", "two": {"a": "xa", "b": "xb"}}
    assert result.output == {"a": "xa", "b": "xb"}


def test_the_output_is_that_of_the_named_step_or_the_last_written() -> None:
    """`output` names it; without, it is the step that was written last."""
    steps = {"a": append("a"), "b": append("b")}
    assert play(Workflow("w", steps), "x").output == "xb"
    assert play(Workflow("w", steps, output="a"), "x").output == "xa"
    assert play(Workflow("w", steps, needs={"a": ["b"]}), "x").output == "xb"


def test_at_once_runs_what_is_ready_together() -> None:
    """Two at a time; a step begins as soon as its needs are met and there is room."""
    steps = {n: step(Script([n], seconds=1), name=n) for n in "abcd"}
    assert play(Workflow("w", steps)).seconds == 4
    assert play(Workflow("w", steps, at_once=2)).seconds == 2
    assert play(Workflow("w", steps, at_once=9)).seconds == 1
    chained = Workflow("w", steps, needs={"d": ["a"]}, at_once=9)
    assert play(chained).seconds == 2


@examples(0.5)
@given(st.integers(1, 6), st.data(), st.integers(1, 4), st.none() | st.integers(0, 99))
def test_any_graph_gives_the_same_in_any_order(
    count: int, data: Any, at_once: int, seed: int | None
) -> None:
    """I44: the outputs follow from the needs alone, not from what runs beside or before."""
    names = [f"s{n}" for n in range(count)]
    needs = {
        name: data.draw(st.lists(st.sampled_from(names[:i]), unique=True)) if i else []
        for i, name in enumerate(names)
    }
    steps = {
        name: step(Script([lambda v, name=name: [name, v]], seconds=i % 3), name=name)
        for i, name in enumerate(names)
    }
    alone = play(Workflow("w", steps, needs=needs), "x")
    module_path_of = play(Workflow("w", steps, needs=needs, at_once=at_once), "x", seed=seed)
    assert module_path_of.output == alone.output
    assert module_path_of.steps == alone.steps


def test_a_failed_step_ends_the_workflow() -> None:
    """What follows is not begun, what runs beside is cancelled; the outputs so far are kept."""
    after = Script(["x"])
    made = Workflow("w", {"a": append("a"), "b": Script([StepError("no")]), "c": after})
    result = play(made, "x")
    assert (result.status, result.detail, result.steps, after.calls) == (
        Status.FAILED, "w/b: no", {"a": "xa"}, [],
    )  # fmt: skip
    slow = step(Script(["x"], seconds=60), name="slow")
    bad = step(Script([StepError("no")], seconds=1), name="bad")
    module_path_of = play(Workflow("w", {"slow": slow, "bad": bad}, at_once=2))
    assert (module_path_of.status, module_path_of.seconds) == (Status.FAILED, 1)


def test_of_steps_that_fail_together_the_first_written_is_reported() -> None:
    """Two failures of one moment: the order on the page decides, and both are taken note of."""
    bad = {n: step(Script([StepError(n)], seconds=1), name=n) for n in "abc"}

    async def work() -> tuple[str, list[Any]]:
        unseen: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        detail = (await run(Workflow("w", bad, at_once=3))).detail
        gc.collect()
        await asyncio.sleep(1)
        return detail, unseen

    assert run_virtual(work()) == ("w/a: a", [])


def test_an_exhausted_loop_lets_the_workflow_go_on_and_shows_in_its_status() -> None:
    """Section 4, H21: it goes on with the best output, but never as a silent success."""
    made = Workflow(
        "w", {"loop": scripted([0.2, 0.1], until=MaxIterations(2)), "after": append("!")},
        needs={"after": ["loop"]},
    )  # fmt: skip
    result = play(made)
    assert (result.status, result.reason, result.output) == (
        Status.EXHAUSTED, Reason.MAX_ITERATIONS, "output 0.2!",
    )  # fmt: skip


def test_a_required_loop_that_is_not_satisfied_ends_the_workflow() -> None:
    """Section 4: with `required` the workflow is exhausted there, with what the loop has."""
    after = Script(["x"])
    loop = scripted([0.2], until=MaxIterations(1), required=True)
    result = play(Workflow("w", {"loop": loop, "after": after}, needs={"after": ["loop"]}))
    assert (result.status, result.reason, result.output, after.calls) == (
        Status.EXHAUSTED, Reason.MAX_ITERATIONS, "output 0.2", [],
    )  # fmt: skip
    assert result.detail == "w/loop is required, but 1 of 1 iterations used"
    assert list(result.loops) == ["refine"]


def test_a_satisfied_loop_gives_the_workflow_its_reason() -> None:
    """The reason is that of the last loop that was satisfied."""
    loop = scripted([1.0], until=ScoreAtLeast(1))
    result = play(Workflow("w", {"a": echo, "loop": loop}), "x")
    assert (result.status, result.reason) == (Status.SATISFIED, Reason.CONDITION_MET)


def test_a_workflow_is_a_step() -> None:
    """It nests in a loop and in a workflow; only the outermost shows its steps in the result."""
    inner = Workflow("inner", {"a": append("a"), "b": append("b")}, needs={"b": ["a"]})
    looped = play(Loop(inner, until=MaxIterations(2), name="l"), "x")
    assert (looped.output, looped.steps) == ("xab", {})
    nested = play(
        Workflow("outer", {"inner": inner, "c": append("c")}, needs={"c": ["inner"]}), "x"
    )
    assert nested.steps == {"inner": "xab", "c": "xabc"}


def test_a_step_sees_the_outputs_of_its_own_workflow_only() -> None:
    """I45: a child's outputs are under its own scope; its parent's variables stay as they are."""
    seen: dict[str, Any] = {}

    def looking(name: str) -> Any:
        async def act(value: Any, ctx: Context) -> str:
            seen[name] = (dict(ctx.outputs), ctx.initial)
            return name

        return step(act, name=name)

    inner = Workflow("inner", {"x": looking("x"), "a": looking("ia")}, needs={"a": ["x"]})
    outer = Workflow(
        "outer", {"a": looking("a"), "inner": inner, "z": looking("z")},
        needs={"inner": ["a"], "z": ["inner"]},
    )  # fmt: skip
    play(outer, "start")
    assert seen == {
        "a": ({}, "start"), "x": ({}, "a"), "ia": ({"x": "x"}, "a"),
        "z": ({"a": "a", "inner": "ia"}, "start"),
    }  # fmt: skip


REFUSED = [
    (lambda: Workflow("w", {}), "workflow w: has no steps; add at least one"),
    (lambda: Workflow("w", {"a": echo}, needs={"a": ["b"]}),
     "workflow w: there is no step 'b'"),
    (lambda: Workflow("w", {"draft": echo}, needs={"draff": []}),
     "workflow w: there is no step 'draff'; did you mean 'draft'?"),
    (lambda: Workflow("w", {"a": echo}, output="z"), "workflow w: there is no step 'z'"),
    (lambda: Workflow("w", {"a": echo}, needs={"a": ["a"]}),
     "workflow w: steps need each other: a -> a"),
    (lambda: Workflow("w", dict.fromkeys("abcd", echo),
                      needs={"a": ["b"], "b": ["c"], "c": ["a"]}),
     "workflow w: steps need each other: a -> b -> c -> a"),
    (lambda: Workflow("w", dict.fromkeys("abc", echo), needs={"a": ["b"], "b": ["c"], "c": ["b"]}),
     "workflow w: steps need each other: b -> c -> b"),
    (lambda: Workflow("w", {"a": echo}, at_once=0),
     "workflow w: at_once: 0 is too small; give at least 1"),
    (lambda: Workflow("w", {"a/b": echo}),
     "workflow w: the step 'a/b' has a slash; it is part of paths"),
    (lambda: Workflow("w", {"a": 3}), "3 cannot be a step; use a function or a step"),
    (lambda: Workflow("w", {"ab": echo, "c": echo}, needs={"c": "ab"}),
     "workflow w: needs of 'c': use a list of steps, not 'ab'"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_a_workflow_that_cannot_mean_anything_is_refused(make: Any, message: str) -> None:
    """I10: unknown needs, circles and empty workflows are refused at load, by name."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert str(caught.value) == message


def test_a_workflows_fingerprint_follows_its_steps_and_needs() -> None:
    """I41: another need, step, name or output is another fingerprint."""
    steps = {"a": echo, "b": echo}
    base = Workflow("w", steps)
    assert base.fingerprint == Workflow("w", steps).fingerprint
    for other in (
        Workflow("v", steps), Workflow("w", steps, needs={"b": ["a"]}),
        Workflow("w", steps, output="a"), Workflow("w", {"a": echo, "b": Script([1])}),
    ):  # fmt: skip
        assert other.fingerprint != base.fingerprint


def test_a_workflow_that_is_cancelled_lets_its_steps_clean_up() -> None:
    """Concurrent steps that are cancelled are waited for."""
    cleaned: list[str] = []

    async def tidy(value: Any) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.1)
            cleaned.append("tidy")

    bad = step(Script([StepError("no")], seconds=1), name="bad")
    play(Workflow("w", {"tidy": tidy, "bad": bad}, at_once=2))
    assert cleaned == ["tidy"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Workflow("w", [echo]), "is not an object; use one by names of steps"),
        (lambda: Workflow("w", {1: echo}), "workflow w: the name 1 of a step is not text"),
        (lambda: Workflow({"a": echo}, "w"), "workflow: name: {'a': "),
        (lambda: Workflow("w", {"a": echo}, needs=["a"]), "workflow w: needs: ['a'] is not an object"),
        (lambda: Workflow("w", {"a": echo}, needs={"a": None}), "use a list of steps, not None"),
        (lambda: Workflow("w", {"a": echo}, needs={"a": [3]}), "workflow w: there is no step 3"),
    ],
)  # fmt: skip
def test_a_workflow_of_another_shape_is_refused(make: Any, message: str) -> None:
    """What is no object of named steps, or names no list of needs, is told with what was expected."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)
