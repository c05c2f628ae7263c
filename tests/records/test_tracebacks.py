"""Tracebacks of users' functions: on record, and the exception itself while it is live."""

from __future__ import annotations

import traceback as standard

import pytest

from loopwright import Loop, MemoryJournal, Workflow, run_sync
from loopwright.conditions import MaxIterations
from loopwright.errors import NotSatisfied, StepError
from loopwright.journal import Entry
from loopwright.records.redaction import FRAMES, LONGEST, described, last_frame


class OutOfPaper(Exception):
    """An exception of a user's."""


def deeper(value: str) -> str:
    secret = "a local value"  # noqa: F841
    raise OutOfPaper(f"no paper for {value}")


def printing(value: str) -> str:
    return deeper(value)


def test_an_iteration_has_the_traceback_of_the_users_function():
    """The failure of an iteration has the exception's qualified name and its frames, with lines;
    frames of this package and locals are not in it."""
    result = run_sync(Loop(printing, until=MaxIterations(1)), "x")
    error = result.history[0].error
    assert error.exception == f"{__name__}.OutOfPaper"
    assert 'test_tracebacks.py", line' in error.traceback
    assert "    return deeper(value)" in error.traceback
    assert error.traceback.rstrip().endswith("OutOfPaper: no paper for x")
    assert "/loopwright/" not in error.traceback
    assert "a local value" not in error.traceback
    assert last_frame(error.traceback).function == "deeper"


def test_the_result_says_which_failure_ended_it():
    """`result.error` is the failure that ended the run, and None where none did."""
    failed = run_sync(Loop(printing, until=MaxIterations(1)), "x")
    assert failed.error == failed.history[0].error
    assert failed.to_json()["error"]["traceback"] == failed.error.traceback
    fine = run_sync(Loop(str.upper, until=MaxIterations(1)), "x")
    assert fine.error is None
    assert "error" not in fine.to_json()


def test_unwrap_raises_from_the_users_exception():
    """`unwrap()` raises NotSatisfied, whose cause is the user's exception itself."""
    result = run_sync(Loop(printing, until=MaxIterations(1)), "x")
    with pytest.raises(NotSatisfied) as caught:
        result.unwrap()
    assert isinstance(caught.value.__cause__, OutOfPaper)
    assert "deeper" in "".join(standard.format_exception(caught.value))


@pytest.mark.parametrize("journal", [None, "memory"])
def test_a_step_error_is_raised_from_the_users_exception(journal):
    """What a call inside a step raises has the user's exception as its cause, with its text."""
    seen = []

    async def outer(value, ctx):
        from loopwright import step

        try:
            return await ctx.call("inner", step(printing), value)
        except StepError as error:
            seen.append(error)
            raise

    result = run_sync(outer, "x", journal=MemoryJournal() if journal else None)
    assert isinstance(seen[0].__cause__, OutOfPaper)
    assert seen[0].exception.endswith("OutOfPaper")
    assert "deeper" in seen[0].traceback
    assert result.error.traceback == seen[0].traceback


def test_a_step_outside_of_loops_has_its_traceback():
    """A step of a workflow without loops that fails leaves its traceback in the result."""
    flow = Workflow("report", {"fetch": str.upper, "print": printing})
    result = run_sync(flow, "x")
    assert result.error.path == "report/print"
    assert "deeper" in result.error.traceback
    assert isinstance(result.cause, OutOfPaper)


def test_a_failed_loop_hands_its_traceback_to_what_is_around_it():
    """A loop inside a workflow fails the run with the traceback of its own failure."""
    flow = Workflow("report", {"print": Loop(printing, name="print", until=MaxIterations(1))})
    result = run_sync(flow, "x")
    assert "deeper" in result.error.traceback
    assert isinstance(result.cause, OutOfPaper)


async def test_tracebacks_are_replayed(tmp_path):
    """A resumed run, a replayed one and its entries have the same traceback as the first."""
    from loopwright import run

    url = f"sqlite:{tmp_path / 'runs.db'}"
    flow = Workflow("report", {"fetch": str.upper, "print": Loop(printing, until=MaxIterations(1))})
    first = await run(flow, "x", journal=url, run_id="r1")
    again = await run(flow, "x", journal=url, run_id="r1")
    assert first.error is not None
    assert again.error == first.error
    assert again.cause is None
    assert again.loops["printing"].history[0].error == first.loops["printing"].history[0].error


async def test_the_entry_of_a_failed_effect_has_its_traceback():
    """The journal holds the traceback at the effect, not only at the iteration."""
    from loopwright import run

    heard: list[Entry] = []
    await run(printing, "x", listeners=[heard.append])
    failed = [entry for entry in heard if entry.kind == "finished"]
    assert failed[0].error.exception.endswith("OutOfPaper")
    assert Entry.from_json(failed[0].to_json()).error == failed[0].error


def test_causes_and_contexts_are_kept():
    """Causes and contexts stand before what they caused, as Python prints them."""

    def load(value):
        try:
            deeper(value)
        except OutOfPaper as error:
            raise ValueError("cannot load") from error

    text = run_sync(load, "x").error.traceback
    first, then = text.split("The above exception was the direct cause of the following exception:")
    assert "OutOfPaper: no paper for x" in first
    assert then.rstrip().endswith("ValueError: cannot load")


def _deep(left: int) -> None:
    if left:
        _deeper(left - 1)
    raise OutOfPaper("bottom")


def _deeper(left: int) -> None:
    _deep(left - 1) if left else _deep(0)


def test_a_traceback_has_the_innermost_twenty_frames():
    """Of a deep stack the 20 innermost frames are kept."""
    text = run_sync(lambda value: _deep(300), "x").error.traceback
    assert text.count('  File "') == FRAMES == 20
    assert last_frame(text).function == "_deep"


def test_a_long_traceback_keeps_its_end():
    """A traceback is at most 8 KB long: its end, at a line, with a mark before it."""

    def failing(value):
        error = ValueError("the last one")
        for number in range(8):
            try:
                raise ValueError(f"{number} " + "x" * 1900)
            except ValueError as inner:
                error.__cause__, inner.__context__ = inner, error.__cause__
        raise error

    text = run_sync(failing, "x").error.traceback
    assert len(text) <= LONGEST == 8192
    assert text.startswith("...\n")
    assert text.rstrip().endswith("ValueError: the last one")


def test_a_long_message_does_not_displace_the_frames():
    """A message of a megabyte is cut, and the frames stay."""

    def failing(value):
        raise ValueError("x" * 1_000_000)

    text = run_sync(failing, "x").error.traceback
    assert "in failing" in text
    assert len(text) < 3000


def test_errors_of_this_package_have_no_traceback():
    """A StepError in which no function of the user's had a part is told by its sentence alone."""
    from loopwright.engine.composites import fallback

    error = StepError("the server is down", kind="transient")
    assert described(error, own=False) == ("", "")
    result = run_sync(fallback(printing, printing), "x")
    assert result.error.kind == "all_failed"


def test_a_step_error_that_a_user_raises_has_its_traceback():
    """A StepError raised in a function of the user's has that function's frames."""

    def refusing(value):
        raise StepError("not today", kind="closed", retryable=False)

    error = run_sync(refusing, "x").error
    assert error.kind == "closed"
    assert error.exception == "loopwright.errors.StepError"
    assert "in refusing" in error.traceback


def test_debug_keeps_the_frames_of_the_package(monkeypatch):
    """LOOPWRIGHT_DEBUG=1 keeps the frames inside the package too."""
    monkeypatch.setenv("LOOPWRIGHT_DEBUG", "1")
    assert "/loopwright/engine/effects.py" in run_sync(printing, "x").error.traceback


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot be printed")


def test_an_exception_that_cannot_be_printed_is_recorded():
    """An exception whose text cannot be made fails the step, not the run's machinery."""

    def failing(value):
        raise Unprintable

    error = run_sync(failing, "x").error
    assert error.kind == "Unprintable"
    assert "in failing" in error.traceback


def test_exception_groups_show_their_members():
    """The members of an exception group stand below it, with their frames."""

    def failing(value):
        found = []
        for word in ("a", "b"):
            try:
                deeper(word)
            except OutOfPaper as error:
                found.append(error)
        raise ExceptionGroup("two jobs", found)

    text = run_sync(failing, "x").error.traceback
    assert "no paper for a" in text
    assert "no paper for b" in text
    assert "in deeper" in text


def test_a_traceback_holds_no_address_key_or_password():
    """Messages and lines of source pass what every stored error passes; files and lines stay."""

    def failing(value):
        raise ValueError("ann@example.org password=hunter2")  # from sk-proj-4f9a8b7c6d5e4f3a2b1c

    text = run_sync(failing, "x").error.traceback
    assert "hunter2" not in text
    assert "ann@" not in text
    assert "4f9a8b7c" not in text
    assert "test_tracebacks.py" in text


def test_a_tool_that_raises_leaves_its_traceback():
    """A function that is a tool leaves its traceback at its effect; a model is not shown it."""
    from loopwright.tools import tool

    @tool
    def divide(a: int) -> int:
        """Divide."""
        return a // 0

    error = run_sync(divide, {"a": 1}).error
    assert error.exception == "ZeroDivisionError"
    assert "return a // 0" in error.traceback

    async def asking(value, ctx):
        from loopwright.tools import call_tool

        return await call_tool(ctx, "divide", divide, {"a": 1})

    assert run_sync(asking, "x").output["error"].keys() == {"kind", "message"}
