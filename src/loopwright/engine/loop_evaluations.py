"""The evaluations of a loop besides `evaluate`: of its input before the first iteration, of its output at the end,
and of each output by the sentences of `until`.

A loop enters this module only with `baseline`, `rejudge`, sentences or an evaluator with preparations.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from ..conditions import Condition, TreeReading
from ..errors import StepError, Stopped
from ..records import Evaluation, History, Iteration, Reason, Stop, as_evaluation
from ..records.codec import Json
from ..records.excerpts import shortened
from .context import Context, Scope
from .loop_approval import answered
from .loop_declaration import LoopDeclaration
from .loop_verdicts import FEEDBACK_SHOWN, UNJUDGED, UNJUDGED_SENTENCE
from .run_state import Run
from .snapshots import Snapshots
from .step import Step

__all__ = ["evaluate_input", "evaluate_output_again", "judge_sentences", "unusable"]

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
    members: tuple[Condition, ...]
    snapshots: Snapshots | None


async def evaluate_input(loop_run: RunWithEvaluator, evaluate: Step) -> Stop | None:
    """Evaluate the input before the first iteration; return the stop if it passes or has no verdict.

    Its effects are recorded at iteration 0, which has no execution and no record.
    """
    loop = loop_run.loop
    loop_run.ctx.path = f"{loop_run.path}/0"
    try:
        value = await loop_run.ctx.call("evaluate", evaluate, loop_run.current)
        evaluation = as_evaluation(value)
        if loop.measured is not None:
            evaluation = loop.measured.scored(evaluation)
        if loop.sentences and _asks_of_input(loop_run):
            item = Iteration(0, loop_run.current, loop_run.current, evaluation=evaluation)
            evaluation = await judge_sentences(loop_run, item, History())
    except StepError as error:
        # Before any cost: an evaluator that cannot judge the input will not judge an output.
        return unusable(loop_run, error)
    except (Stopped, asyncio.CancelledError) as error:
        loop_run.cut = loop_run.run_state.stopped_by(error, loop_run.path)
        return loop_run.cut.stop
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


def _asks_of_input(loop_run: RunWithEvaluator) -> bool:
    """Whether the sentences are part of the evaluation of the input; in runs of earlier versions they are not."""
    replay = loop_run.run_state.replay
    if replay is None or not len(loop_run.history):
        return True
    return any(path.startswith(f"{loop_run.path}/0/until/") for path in replay.finished)


async def judge_sentences(
    loop_run: RunWithEvaluator, item: Iteration, history: History
) -> Evaluation:
    """Ask the sentences of `until` that can still make the loop succeed, and return the evaluation with their verdicts.

    Args:
        loop_run: the run of the loop.
        item: the record of the iteration so far, or of the input with the number 0.
        history: the iterations before it, at the present time.
    """
    loop, of_input = loop_run.loop, item.number == 0
    evaluation = item.evaluation or Evaluation()
    if loop.measured is not None and not of_input:
        item = loop.measured.judged(item, history, loop_run.scope.baseline)
    if loop_run.snapshots is not None and not of_input:
        item = replace(item, files=loop_run.snapshots.current)
    after = history.continued(item)
    reading = TreeReading(loop_run.members, after, {}, of_input=of_input)
    checked = _checked(loop_run, evaluation)
    verdicts: dict[str, Json] = {}
    # A check that failed is not overruled.
    if checked is False or not after.can_satisfy:
        return replace(evaluation, verdicts=verdicts)
    numbers = {sentence: number for number, sentence in enumerate(loop.sentences, start=1)}
    while (question := reading.needed()) is not None:
        sentence = question.sentence
        step, place = loop.sentences[sentence], f"until/{numbers[sentence]}"
        judged = as_evaluation(await loop_run.ctx.call(place, step, item.output))
        verdicts[sentence] = {
            "passed": None if judged.undecided else judged.passed,
            "feedback": judged.feedback,
            "votes": list(judged.votes),
        }
        reading.answers[sentence] = verdicts[sentence]["passed"]
    policy, unjudged = loop.undecided, False
    if not of_input and policy.then != "fail" and policy.due(history):
        while (question := reading.needed(asked=True)) is not None:
            verdict = verdicts[sentence := question.sentence]
            if policy.then == "pause":
                given = answered(loop_run, numbers[sentence], sentence, item, verdict["feedback"])
                verdict |= {**given, "votes": [*verdict["votes"], *given["votes"]]}
            else:
                if not unjudged and policy.then == "accept_check":
                    loop_run.ctx.warn(UNJUDGED_SENTENCE, code=UNJUDGED)
                unjudged = True
                verdict["passed"] = policy.then == "accept_check" and checked is True
            reading.answers[sentence] = verdict["passed"]
    whole = replace(
        evaluation,
        undecided=reading.value() == "open",
        unjudged=evaluation.unjudged or unjudged,
        verdicts=verdicts,
    )
    texts = [evaluation.feedback] if evaluation.feedback else []
    return replace(whole, feedback="\n".join([*texts, *whole.gaps]))


def _checked(loop_run: RunWithEvaluator, evaluation: Evaluation) -> bool | None:
    """Return the verdict of the evaluators without a model; None without one."""
    evaluate = loop_run.loop.evaluate
    if evaluate is None:
        return None
    return loop_run.scope.checked if evaluate.asks_model else evaluation.passed


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
