"""What the tests of checks share: a loop of one round, and what its evaluator finds in an output."""

from __future__ import annotations

from typing import Any

from loopwright import Evaluation, Iteration, Loop, MaxIterations, Passed, run_sync, step


@step(inline=True)
def same(value: Any) -> Any:
    """Return the value."""
    return value


def judged(evaluator: Any, output: Any) -> Iteration:
    """Return the record of one round whose output is judged."""
    return run_sync(Loop(same, evaluator, until=Passed() | MaxIterations(1)), output).history[0]


def found(evaluator: Any, output: Any) -> Evaluation:
    """Return what an evaluator finds in an output."""
    evaluation = judged(evaluator, output).evaluation
    assert evaluation is not None, judged(evaluator, output).error
    return evaluation


def error(evaluator: Any, output: Any = "x") -> tuple[str, str]:
    """Return the kind and the message of an evaluator's failure."""
    failure = judged(evaluator, output).error
    assert failure is not None
    assert failure.stage == "evaluate"
    return failure.kind, failure.message


def gaps(evaluation: Evaluation) -> list[str]:
    """Return the gaps of the criteria that fail."""
    return [item.gap for item in evaluation.criteria if not item.passed]
