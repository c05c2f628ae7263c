"""The evaluations of a loop outside its iterations: of its input before the first one, of its output at the end.

A loop enters this module only with `baseline`, `rejudge` or an evaluator with preparations.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from ..errors import StepError, Stopped
from ..records import Evaluation, History, Reason, Stop, as_evaluation
from ..records.codec import Json
from ..records.excerpts import shortened
from .context import Context, Scope
from .loop_declaration import LoopDeclaration
from .loop_verdicts import FEEDBACK_SHOWN
from .run_state import Run
from .step import Step

__all__ = ["evaluate_input", "evaluate_output_again", "unusable"]

# Nothing is left for further votes.
_USED_UP = (Reason.CANCELLED, Reason.TIMEOUT, Reason.DEADLINE, Reason.BUDGET)


class RunWithEvaluator(Protocol):
    """The parts of a `LoopRun` that these evaluations need."""

    loop: LoopDeclaration
    history: History
    path: str
    run_state: Run
    ctx: Context
    scope: Scope
    current: Json
    cut: Stopped | None
    cause: BaseException | None


async def evaluate_input(loop_run: RunWithEvaluator, evaluate: Step) -> Stop | None:
    """Evaluate the input before the first iteration; return the stop if it passes or has no verdict.

    Its effects are recorded at iteration 0, which has no execution and no record.
    """
    loop = loop_run.loop
    loop_run.ctx.path = f"{loop_run.path}/0"
    try:
        value = await loop_run.ctx.call("evaluate", evaluate, loop_run.current)
    except StepError as error:
        # Before any cost: an evaluator that cannot judge the input will not judge an output.
        return unusable(loop_run, error)
    except (Stopped, asyncio.CancelledError) as error:
        loop_run.cut = loop_run.run_state.stopped_by(error, loop_run.path)
        return loop_run.cut.stop
    evaluation = as_evaluation(value)
    if loop.measured is not None:
        evaluation = loop.measured.scored(evaluation)
    loop_run.scope.baseline = evaluation
    # A resumed loop needs the evaluation for comparisons, but its iterations decide.
    if len(loop_run.history):
        return None
    if (lack := _lack(loop, evaluation)) is not None:
        return lack
    if not loop.satisfied_by(evaluation):
        return None
    return Stop(Reason.ALREADY_SATISFIED, "the evaluation passed before the first iteration")


def unusable(loop_run: RunWithEvaluator, error: StepError) -> Stop:
    """Return the stop of a loop whose evaluator cannot judge."""
    loop_run.cause = error.__cause__
    detail = f"before the first iteration: {error}"
    return Stop(Reason.EVALUATOR_UNUSABLE, loop_run.run_state.redact(detail))


def _lack(loop: LoopDeclaration, evaluation: Evaluation) -> Stop | None:
    """Return the stop of a loop whose objective cannot be measured before the first iteration."""
    metrics = loop.measured
    if metrics is None or not metrics.objective or metrics.objective in evaluation.metrics:
        return None
    # Before any cost: each iteration is compared with this value.
    detail = f"before the first iteration, {metrics.objective} has no value"
    why = shortened(" ".join(evaluation.feedback.split()), FEEDBACK_SHOWN)
    return Stop(Reason.EVALUATOR_UNUSABLE, f"{detail}: {why}" if why else detail)


async def evaluate_output_again(
    loop_run: RunWithEvaluator, stop: Stop, output: Json
) -> float | None:
    """Return the mean score of new votes on the output, which did not take part in its choice.

    None if no evaluator scores the output, or if no time or budget is left.
    """
    loop = loop_run.loop
    if loop.evaluate is None or stop.reason in _USED_UP or loop_run.history.best is None:
        return None
    scores = []
    try:
        for number in range(1, loop.rejudge + 1):
            loop_run.ctx.path = f"{loop_run.path}/rejudge/{number}"
            vote = as_evaluation(await loop_run.ctx.call("evaluate", loop.evaluate, output))
            if vote.score is not None and not vote.undecided:
                scores.append(vote.score)
    except (StepError, Stopped, asyncio.CancelledError) as error:
        # The loop has ended, so a failure is a warning and does not change how it ended.
        failed = isinstance(error, StepError)
        why = error if failed else loop_run.run_state.stopped_by(error, loop_run.path).stop.detail
        sentence = f"its output could not be judged again: {why}"
        loop_run.run_state.warn(sentence, loop_run.path, code="rejudge_failed")
    return sum(scores) / len(scores) if scores else None
