"""The lifecycle: one table, events refused as data, and every run shown by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.support import DyingJournal, Script, play, verdict
from loopwright import (
    Context,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    ScoreAtLeast,
    Timeout,
    Workflow,
    run,
    sequence,
)
from loopwright.agents import Lifecycle, LifecycleListener, lifecycle_of
from loopwright.agents.lifecycle import (
    ACTIVE,
    TABLE,
    TERMINAL,
    Event,
    State,
    diagram,
    event_table,
)
from loopwright.errors import StepError
from loopwright.journal import Entry
from loopwright.testing import run_virtual

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "lifecycle.md"


def test_the_page_is_the_table() -> None:
    """The diagram and the table of the documentation are made from the table of the code."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"```text\n{diagram()}\n```" in text
    assert event_table() in text


def test_the_diagram_has_every_edge() -> None:
    """Each row of the table is drawn, from the box of active states where all of them have it."""
    drawn = set(re.findall(r"(\w+) --> (\w+): (\w+)", diagram()))
    for (state, event), after in TABLE.items():
        target = after.value if after is not None else "active"
        box = ("active", target, event.value)
        assert (state.value, target, event.value) in drawn or (state in ACTIVE and box in drawn)


EDGES = {
    "idle": {"initializing"},
    "initializing": {"planning"},
    "planning": {"executing"},
    "executing": {"evaluating", "waiting_input", "waiting_agent", "failed"},
    "evaluating": {"executing", "adapting", "succeeded", "failed"},
    "adapting": {"executing", "failed"},
    "waiting_input": {"executing", "failed"},
    "waiting_agent": {"executing", "failed"},
    "succeeded": {"idle"},
    "failed": {"idle"},
    "cancelled": {"idle"},
}


@pytest.mark.parametrize("state", EDGES)
def test_the_edges_of_the_source_are_there(state: str) -> None:
    """Every edge that the controller's state machine draws is in the table, with pause and cancel."""
    found = {after for (before, _), after in TABLE.items() if before == state}
    assert EDGES[state] <= found
    if state in ACTIVE:
        assert {"paused", "cancelled"} <= found


@given(st.lists(st.sampled_from([*Event, "start", "NOPE", ""]), max_size=40))
def test_any_events_keep_a_lifecycle_whole(events: list[str]) -> None:
    """Whatever is sent, a refused event changes nothing and says what is accepted; nothing raises."""
    lifecycle = Lifecycle()
    for event in events:
        move = lifecycle.on(event)
        assert move.before is lifecycle.state
        if not move.success:
            assert move.lifecycle == lifecycle and move.reason and move.valid == lifecycle.valid
            assert all(lifecycle.on(valid).success for valid in move.valid)
        elif event == Event.RESUME:
            assert move.after is lifecycle.previous
        assert (move.after is State.PAUSED) == (move.lifecycle.previous is not None)
        lifecycle = move.lifecycle


@given(st.lists(st.sampled_from(list(Event)), max_size=20))
def test_an_end_can_always_be_reached(events: list[Event]) -> None:
    """From whatever state, cancelling ends the work, and every active state can also fail."""
    lifecycle = Lifecycle()
    for event in events:
        lifecycle = lifecycle.on(event).lifecycle
    if lifecycle.state in ACTIVE:
        for event in (Event.STEP_FAILED, Event.TIMEOUT, Event.MAX_ITERATIONS, Event.CANCEL):
            assert lifecycle.on(event).lifecycle.terminal
    elif lifecycle.state is State.PAUSED:
        assert lifecycle.on(Event.CANCEL).lifecycle.terminal


def told(follower: LifecycleListener) -> list[str]:
    return [moment.move.event for moment in follower.moments]


def followed(made: Any, value: Any = "x", **options: Any) -> LifecycleListener:
    """Run with a follower that listens."""
    follower = LifecycleListener()
    play(made, value, listeners=[follower], **options)
    assert all(moment.move.success for moment in follower.moments)
    return follower


BEGIN = ["START", "INIT_COMPLETE", "PLAN_COMPLETE", "STEP_COMPLETE"]
ROUND = ["EVALUATION_FAIL", "ADAPTATION_COMPLETE", "STEP_COMPLETE"]


def test_a_loop_goes_round() -> None:
    """Rounds that are not good enough adapt and execute again, with an adapter or without."""
    for adapt in (None, Script(["again"])):
        loop = Loop(Script(["a"]), Script([0.1, 0.2, 0.9]), adapt, ScoreAtLeast(0.8), name="l")
        assert told(followed(loop)) == [*BEGIN, *ROUND, *ROUND, "EVALUATION_PASS"]


def test_limits_and_errors_reach_an_end() -> None:
    """A limit, a timeout and an error each end in failed, with what it was in the detail (F16)."""
    limited = followed(Loop(Script(["a"]), Script([0.1]), until=MaxIterations(2), name="l"))
    assert told(limited) == [*BEGIN, *ROUND, "MAX_ITERATIONS"]
    assert limited.moments[-1].detail == "2 of 2 iterations used"
    slow = Loop(Script(["a"], seconds=5), Script([0.1]), until=Timeout(7), name="l")
    assert told(followed(slow))[-1] == "TIMEOUT"
    broken = followed(Loop(Script([StepError("no")]), name="l"))
    assert told(broken)[-1] == "STEP_FAILED" and broken.state == "failed"


def test_a_round_that_fails_and_is_gone_on_from() -> None:
    """A failed round of a loop that continues is a try that was not good enough."""
    loop = Loop(
        Script([StepError("no"), "a"]), Script([1.0]), until=Passed() | ScoreAtLeast(0.5),
        name="l", on_failure="continue",
    )  # fmt: skip
    assert told(followed(loop)) == [*BEGIN, *ROUND, "EVALUATION_PASS"]


def test_steps_and_workflows_have_one_too() -> None:
    """A plain step passes when it completes; from loop to step it is the next step."""
    assert told(followed(Script(["a"]))) == [*BEGIN, "EVALUATION_PASS"]
    one = Loop(Script(["a"]), Script([1.0]), until=ScoreAtLeast(0.5), name="one")
    two = Loop(Script(["a"]), Script([1.0]), until=ScoreAtLeast(0.5), name="two")
    flow = Workflow("flow", {"one": one, "two": two})
    found = told(followed(flow))
    assert found == [*BEGIN, "NEXT_STEP", "STEP_COMPLETE", "EVALUATION_PASS"]


def test_a_question_waits_for_input() -> None:
    """A run that asks a person waits; the answer, and going on, are events of their own."""

    async def asks(_: Any, ctx: Context) -> Any:
        return ctx.ask("sure", {"what": "this"}, "a person is asked")

    journal = MemoryJournal()
    follower = followed(sequence(Script(["a"]), asks, name="s"), journal=journal, run_id="r")
    assert follower.state == "waiting_input"
    assert follower.moments[-1].detail == "a person is asked"
    follower(Entry("answered", "s/2/sure", 1.0, value=True))
    assert follower.state == "executing"


def test_a_rewound_run_starts_again() -> None:
    """A run that had ended, was rewound and resumed, ends a second time."""
    journal = MemoryJournal()
    loop = Loop(Script(["a"]), Script([0.1]), until=MaxIterations(1), name="l")
    play(loop, "x", journal=journal, run_id="r")
    run_virtual(journal.rewind("r", "l/1/execute"))
    play(loop, "x", journal=journal, run_id="r")
    found = lifecycle_of(run_virtual(journal.entries("r")))
    assert told(found) == [*BEGIN, "MAX_ITERATIONS", "RESET", *BEGIN, "MAX_ITERATIONS"]


MARKS = st.lists(st.sampled_from([0.1, 0.5, 0.9, "error"]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    MARKS,
    st.booleans(),
    st.sampled_from(["halt", "continue"]),
    st.sampled_from([None, 2, 3.5]),
    st.integers(0, 30),
)
def test_every_run_has_a_lifecycle(
    marks: list[Any], adapts: bool, on_failure: str, timeout: float | None, dies: int
) -> None:
    """However a run goes, is killed and resumed, each event is accepted, and its end is that of the run."""
    inner = Loop(
        Script(["a"], seconds=1),
        Script([verdict(m) if m != "error" else StepError("no") for m in marks]),
        Script(["again"]) if adapts else None,
        ScoreAtLeast(0.8) | MaxIterations(4) | (Timeout(timeout) if timeout else MaxIterations(4)),
        name="inner",
        on_failure=on_failure,
    )
    journal = DyingJournal(dies)
    made = sequence(Script(["first"]), inner, name="all")
    try:
        result = run_virtual(run(made, "x", journal=journal, run_id="r"))
    except BaseException as error:
        assert type(error).__name__ in ("CancelledError", "OwnershipLost")
        journal.at = 0
        result = run_virtual(run(made, "x", journal=journal, run_id="r"))
    entries = run_virtual(journal.entries("r"))
    found = lifecycle_of(entries)
    assert all(moment.move.success for moment in found.moments)
    wanted = {"satisfied": "succeeded", "exhausted": "failed", "failed": "failed"}
    assert found.state == wanted[result.status.value]
    assert found.state in TERMINAL
    for end in range(len(entries)):
        assert all(m.move.success for m in lifecycle_of(entries[:end]).moments)
