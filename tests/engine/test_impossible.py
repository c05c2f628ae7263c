"""Evaluations that call a task impossible, and the end of the loop."""

from __future__ import annotations

import pytest

from loopwright import (
    Evaluation,
    Impossible,
    Loop,
    MaxIterations,
    MemoryJournal,
    Passed,
    Reason,
    ScoreAtLeast,
    Status,
    Workflow,
    resume_sync,
    run_sync,
)
from loopwright.errors import ConfigurationError
from loopwright.records import as_evaluation

from .support import ERROR, UNDECIDED, history, judged, play

NEVER = Evaluation(impossible=True, feedback="there is no such file")


def loop_of(*marks: object, **options: object) -> Loop:
    """Return a loop with these evaluations by iteration; the last one is repeated."""
    given = iter(marks)
    latest: list[object] = []

    def evaluate(_: object) -> Evaluation | None:
        latest.append(next(given, latest[-1] if latest else None))
        return judged(latest[-1])

    until = options.pop("until", Passed() | ScoreAtLeast(0.9) | MaxIterations(8))
    return Loop(lambda value: value, evaluate, until=until, name="work", **options)  # type: ignore[arg-type]


def test_the_earliest_end_is_the_fourth_iteration() -> None:
    """Two looks in a row from iteration 3 on end the loop, with status, reason and exit code of their own."""
    result = play(loop_of(NEVER))
    assert (result.status, result.reason) == (Status.IMPOSSIBLE, Reason.IMPOSSIBLE)
    assert (result.iterations, result.status.exit_code) == (4, 5)
    assert result.detail.endswith("the task is impossible: there is no such file")


@pytest.mark.parametrize(
    ("marks", "ends"),
    [
        ([NEVER] * 3, False),
        ([False, False, NEVER, NEVER], True),
        ([False, NEVER, NEVER], False),
        ([False, False, NEVER, False, NEVER], False),
        ([False, False, NEVER, UNDECIDED, NEVER], True),
        ([False, False, NEVER, ERROR, NEVER], True),
        ([False, False, NEVER, NEVER, UNDECIDED], False),
        ([False, False, NEVER, NEVER, False], False),
    ],
)
def test_only_decided_iterations_in_a_row_count(marks: list[object], ends: bool) -> None:
    """A failed or undecided iteration neither counts nor starts the count again; another verdict does."""
    assert (Impossible().check(history(*marks)) is not None) is ends


def test_floor_and_looks_are_options() -> None:
    """The limits of the count can be raised, and the fingerprint of a loop contains them."""
    result = play(loop_of(NEVER, impossible=Impossible(floor=2, looks=3)))
    assert result.iterations == 4
    changed = Loop(str, str, impossible=Impossible(floor=4))
    assert changed.fingerprint != Loop(str, str).fingerprint


@pytest.mark.parametrize("wrong", [{"looks": 1}, {"floor": 0}])
def test_one_look_is_refused(wrong: dict[str, int]) -> None:
    """One look is one vote of a model, which may be wrong."""
    with pytest.raises(ConfigurationError, match="impossible: "):
        Impossible(**wrong)


def test_an_impossible_evaluation_never_satisfies() -> None:
    """Its score orders outputs, and no condition of success holds for it."""
    result = play(loop_of(Evaluation(0.95, impossible=True, feedback="no")))
    assert (result.status, result.iterations, result.best.score) == (Status.IMPOSSIBLE, 4, 0.95)
    with pytest.raises(Exception, match="is not impossible"):
        Evaluation(passed=True, impossible=True)


def test_before_the_end_it_is_feedback() -> None:
    """The reason reaches the next iteration, and a later success counts."""
    result = play(loop_of(False, False, NEVER, True))
    assert result.status is Status.SATISFIED
    assert result.history[2].feedback == "there is no such file"
    assert result.history[2].passed is False


def test_an_iteration_limit_at_the_same_iteration_gives_way() -> None:
    """Impossible ranks before the limit, and the limit is reported beside it."""
    result = play(loop_of(NEVER, until=Passed() | MaxIterations(4)))
    assert result.reason is Reason.IMPOSSIBLE
    assert result.also == (Reason.MAX_ITERATIONS,)


def test_a_function_returns_the_reason() -> None:
    """An object with the reason is an evaluation that is not met."""
    evaluation = as_evaluation({"impossible": "the city does not exist"})
    assert (evaluation.impossible, evaluation.passed) == (True, False)
    assert evaluation.feedback == "the city does not exist"
    assert as_evaluation(evaluation.to_json()) == evaluation


def test_a_workflow_continues_as_after_an_exhausted_loop() -> None:
    """The next step runs, and the status of the workflow is that of the loop, unless the loop accepts it."""
    flow = Workflow("flow", {"work": loop_of(NEVER), "after": lambda value: "done"})
    result = play(flow, "x")
    assert (result.status, result.output) == (Status.IMPOSSIBLE, "done")
    accepted = Workflow("flow", {"work": loop_of(NEVER, accept=["impossible"]), "after": str})
    assert play(accepted, "x").status is Status.SATISFIED


def test_a_recorded_end_is_shown_again() -> None:
    """A resumed run returns the same result, without another evaluation."""
    journal = MemoryJournal()
    loop = loop_of(NEVER)
    first = run_sync(loop, "x", journal=journal, run_id="a")
    assert resume_sync(loop, "a", journal=journal).to_json() == first.to_json()
