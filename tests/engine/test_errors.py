"""The error tree: whose fault it is, where it happened, and what no `except Exception` may see."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from loopwright import (
    Budget,
    Loop,
    LoopwrightError,
    MaxIterations,
    MemoryJournal,
    Reason,
    Stop,
    Usage,
    errors,
    retry,
    run_sync,
    step,
)
from loopwright.errors import (
    BudgetExceeded,
    DocumentError,
    EvaluationError,
    Interruption,
    OwnershipLost,
    Problem,
    ReplayMismatch,
    StepError,
    StepTimeout,
    Stopped,
    Suspended,
    listed,
    nearest,
)


def test_the_tree_is_the_one_that_the_docstring_draws() -> None:
    """Every error of the module is in the drawing, under its parent, and nothing else is."""
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in inspect.getdoc(errors).split("::\n", 1)[1].splitlines():  # type: ignore[union-attr]
        found = re.match(r"( +)([A-Z]\w+)", line)
        if found:
            depth, name = len(found[1]), found[2]
            above = [(d, n) for d, n in above if d < depth]
            drawn[name] = above[-1][1] if above else ""
            above.append((depth, name))
    real = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, BaseException)
    }
    assert set(drawn) == set(real)
    for name, parent in drawn.items():
        assert not parent or real[parent] in real[name].__bases__


def test_an_interruption_is_not_an_exception() -> None:
    """Control that leaves a step passes every `except Exception`."""
    assert not issubclass(Interruption, Exception)
    for kind in (Stopped, Suspended, OwnershipLost):
        assert issubclass(kind, Interruption)


def test_errors_carry_their_facts() -> None:
    """Facts are attributes; nobody parses a message."""
    failed = StepError("no", path="a/1", kind="throttled", retryable=False, retry_after=3.0)
    assert (failed.path, failed.kind, failed.retryable) == ("a/1", "throttled", False)
    assert failed.retry_after == 3.0
    late = StepTimeout("late", path="a")
    assert (late.kind, late.retryable) == ("timeout", True)
    mismatch = ReplayMismatch("changed", path="a", recorded="x", now="y")
    assert (mismatch.path, mismatch.recorded, mismatch.now) == ("a", "x", "y")
    assert issubclass(EvaluationError, StepError)
    assert issubclass(StepError, LoopwrightError)


def test_stopped_and_suspended_say_who_and_why() -> None:
    """The owner of a guard, or the run itself, begins the message."""
    stop = Stop(Reason.TIMEOUT, "60 s used")
    assert str(Stopped("refine", stop)) == "refine: 60 s used"
    assert str(Stopped("", stop)) == "run: 60 s used"
    waits = Suspended(stop, path="a/1")
    assert (str(waits), waits.path, waits.request) == ("60 s used", "a/1", {})
    assert Suspended(stop, path="a", request={"question": "?"}).request == {"question": "?"}


def test_a_document_error_shows_every_problem_in_order() -> None:
    """Problems are sorted by place; each line is file, line, column, path, message."""
    problems = [
        Problem("b.yaml", 2, 1, "loops[0]", "second"),
        Problem("b.yaml", 1, 9, "", "first"),
        Problem("a.yaml", 0, 0, "", "whole file"),
    ]
    found = DocumentError(problems)
    assert str(found) == "a.yaml: whole file\nb.yaml:1:9: first\nb.yaml:2:1: loops[0]: second"
    assert [p.message for p in found.problems] == ["whole file", "first", "second"]


@pytest.mark.parametrize(
    ("word", "hint"), [("max_iteration", "; did you mean 'max_iterations'?"), ("zzz", ""), ("", "")]
)
def test_the_nearest_valid_name_is_offered(word: str, hint: str) -> None:
    """A word close to a valid one is a hint, a far one is none."""
    assert nearest(word, ["max_iterations", "timeout"]) == hint


def test_names_are_listed_on_a_line() -> None:
    """Few names are listed as they are; of many, those like the word come first and the others are counted."""
    assert listed("x", []) == ""
    assert listed("x", ["b", "a", "b"]) == "; known here: b, a"
    many = [f"step_number_{i}" for i in range(30)] + ["the_topic"]
    told = listed("topics", many, lead="there are", more="steps")
    assert told.startswith("; there are: the_topic, step_number_0")
    assert told.endswith(" and 27 more (steps)")
    assert len(told) < 110
    assert len(listed("x", ["y" * 1000, *many])) < 150


def test_a_required_loop_that_used_up_its_budget_raises_budget_exceeded() -> None:
    """The class and the kind say so, live and after a replay; the traceback is nobody's."""
    loop = Loop(
        step(spends, reserve=Usage(calls=1)),
        name="draft",
        until=MaxIterations(9),
        guards=Budget(calls=1),
        required=True,
    )
    seen: list[BaseException] = []

    async def outer(value: Any, ctx: Any) -> Any:
        try:
            return await ctx.call("inner", retry(loop, attempts=1), value)
        except StepError as error:
            seen.append(error)
            raise

    journal = MemoryJournal()
    result = run_sync(outer, 1, journal=journal, run_id="r")
    assert result.error is not None and result.error.kind == "budget"
    assert isinstance(seen[0], BudgetExceeded)
    assert isinstance(result.error.to_error(), BudgetExceeded)
    again = run_sync(outer, 1, journal=journal, run_id="r")
    assert again.error == result.error


def spends(value: Any, ctx: Any) -> Any:
    """Spend one call."""
    ctx.spend(Usage(calls=1))
    return value
