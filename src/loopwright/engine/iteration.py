"""What happens in and around one iteration of a loop: its stages, further evaluations, and questions to a person.

- The stages are adapt, execute and evaluate; an iteration also has the failure or cut that ended it.
- Besides `evaluate`, a loop with `baseline` or an evaluator with preparations evaluates its input before the first
  iteration, one with `rejudge` its output at the end, and one with sentences in `until` each output by them.
- A person is asked after an iteration, at a limit, and in place of an undecided judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..conditions import CEILING, FEEDBACK_SHOWN, TreeReading
from ..errors import StepError, Stopped
from ..records import (
    Candidate,
    Evaluation,
    Failure,
    History,
    Iteration,
    Reason,
    Status,
    Stop,
    as_evaluation,
)
from ..records.codec import ATOMS, Json
from ..records.display import shortened
from ..records.evaluation import misspelling
from ..records.iteration import new_iteration
from ..records.typed import CARRIERS, ValueType, json_of
from .context import Context
from .loop_options import UNJUDGED, UNJUDGED_SENTENCE
from .step import CompositeStep, Step

if TYPE_CHECKING:
    from .loop import LoopRun  # it imports this module

__all__ = [
    "Attempt",
    "Call",
    "answered",
    "approved",
    "evaluate_input",
    "evaluate_output_again",
    "judge_sentences",
    "settled",
]

_LIMITS = (Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT)


def approved(loop_run: LoopRun, stop: Stop | None, *, stalled: bool = False) -> Stop | None:
    """Return the stop of a loop with questions after its latest iteration, or None if it continues.

    `stop` is the decision of its conditions, `stalled` asks because there is no progress. A person can raise
    a limit, but not undo a success.

    Raises:
        Suspended: until the question is answered.
    """
    asks, number, best = loop_run.loop.approve, len(loop_run.history), loop_run.history.best
    if stop is None:
        return _after_iteration(loop_run) if stalled or "iteration" in asks else None
    # The ceiling cannot be raised, so at the ceiling there is nothing to ask.
    if stop.reason not in _LIMITS or "limit" not in asks or number >= CEILING:
        return stop
    detail = stop.detail
    if best is not None and best.score is not None:
        detail += f", best {best.score:.3g}"
    request = {"kind": "limit", "more": min(loop_run.loop.limit, CEILING - number)}
    # An approval raises the limit, so that the loop reaches this line only after a refusal.
    answer = _ask(loop_run, "limit", request, detail)
    if answer["approve"]:
        # Only the rule of a dry run approves here: a real answer has raised the limit already.
        return replace(stop, detail=f"{stop.detail}; a dry run does not raise limits")
    return replace(stop, detail=_with_reason(f"{stop.detail}, and a person ended it there", answer))


def _after_iteration(loop_run: LoopRun) -> Stop | None:
    number = len(loop_run.history)
    replay = loop_run.run_state.replay
    if replay is not None and f"{loop_run.path}/{number}/limit" in replay.answers:
        return None  # the person who raised the limit has reviewed this iteration
    score = loop_run.history[-1].score
    shown = "" if score is None else f", score {score:.3g}"
    answer = _ask(loop_run, "approve", {"kind": "iteration"}, f"iteration {number} is done{shown}")
    if answer["approve"]:
        return None
    if answer.get("accept"):
        return Stop(Reason.ACCEPTED, f"a person accepted the output of iteration {number}")
    # A person who accepts the output satisfies the loop; one who only ends it does not.
    return Stop(Reason.STOPPED, _with_reason(f"a person ended it after iteration {number}", answer))


def answered(
    loop_run: LoopRun, number: int, sentence: str, item: Iteration, feedback: str
) -> dict[str, Json]:
    """Return the verdict of a person in place of a judge that could not decide on a sentence of `until`.

    Raises:
        Suspended: until a person has given the verdict.
    """
    request: dict[str, Json] = {
        "kind": "verdict", "loop": loop_run.path, "iteration": item.number, "sentence": sentence,
        "output": item.output, "feedback": feedback,
    }  # fmt: skip
    detail = f"{loop_run.loop.name}: the judge could not decide on iteration {item.number}: is this true: {sentence}"
    # Not below the effect of the sentence, which has ended.
    ctx = loop_run.ctx.child(f"{loop_run.path}/{item.number}")
    given = _verdict_of(ctx.ask(f"verdict-{number}", request, detail))
    return {
        "passed": given.get("passed"),
        "feedback": str(given.get("reason", "")),
        "votes": [{"person": dict(given)}],
    }


def _verdict_of(answer: Json) -> Mapping[str, Json]:
    # The rule of a dry run can be true or false.
    return answer if isinstance(answer, Mapping) else {"passed": answer is True}


def settled(loop_run: LoopRun, attempt: Attempt) -> Evaluation:
    """Return the evaluation of an attempt whose evaluator could not judge, as the loop's policy says.

    Raises:
        Suspended: until a person has given the verdict.
    """
    policy, evaluation = loop_run.loop.undecided, attempt.evaluation
    assert evaluation is not None
    if policy.then not in ("pause", "reject") or not policy.due(loop_run.history):
        return evaluation
    if policy.then == "reject":
        return policy.rejected(evaluation)
    # Before the iteration is recorded, so that its record has the verdict of the person.
    number = len(loop_run.history) + 1
    request: dict[str, Json] = {
        "kind": "verdict", "loop": loop_run.path, "iteration": number,
        "output": attempt.output, "feedback": evaluation.feedback,
    }  # fmt: skip
    detail = f"{loop_run.loop.name}: the judge could not decide on iteration {number}: is it good?"
    answer = attempt.ctx.ask("verdict", request, detail)
    given = _verdict_of(answer)
    return Evaluation(
        given.get("score"),
        given.get("passed"),
        str(given.get("reason", "")),
        votes=(*evaluation.votes, {"person": dict(given)}),
    )


def _ask(loop_run: LoopRun, name: str, request: dict[str, Json], detail: str) -> Mapping[str, Json]:
    number = len(loop_run.history)
    request |= {"loop": loop_run.path, "iteration": number}
    ctx = loop_run.ctx.child(f"{loop_run.path}/{number}")
    answer = ctx.ask(name, request, f"{loop_run.loop.name}: {detail}: go on?")
    if isinstance(answer, Mapping):
        return {"approve": False, **answer}
    # The rule of a dry run can be true, false or the reason of a refusal.
    return {"approve": answer is True, "reason": answer if isinstance(answer, str) else ""}


def _with_reason(sentence: str, answer: Mapping[str, Json]) -> str:
    return f"{sentence}: {answer['reason']}" if answer.get("reason") else sentence


UNKNOWN_FIELDS = "unknown_fields"  # the code of a warning
# Runs one step in a context. A function with the context as argument, such as `Context.call` or
# `unrecorded`: a bound method would be one more object of each running loop.
Call = Callable[..., Awaitable[Json]]


class Attempt:
    """One iteration while it runs: the results of its stages, and the failure or cut that ended it.

    The error of a step becomes its `failure`, and a guard or a cancellation of the run its `cut`. The
    cancellation of the task alone is not recorded: it propagates. `call` runs its steps.
    """

    __slots__ = (
        "began",
        "call",
        "candidates",
        "cause",
        "ctx",
        "cut",
        "ended",
        "evaluation",
        "failure",
        "input",
        "loops",
        "output",
        "scope",
        "stage",
    )
    ended: float  # set by `iteration`

    def __init__(self, ctx: Context, value: Json, began: float, adapts: bool, call: Call) -> None:
        assert ctx.scope is not None
        self.ctx, self.scope = ctx, ctx.scope
        self.call = call
        self.began = began
        self.output: Json = None
        self.candidates: tuple[Candidate, ...] = ()
        self.evaluation: Evaluation | None = None
        self.failure: Failure | None = None
        self.cut: Stopped | None = None
        self.cause: BaseException | None = None
        self.input = value
        self.loops = self.scope.loops  # those that ended in earlier iterations
        self.stage = "adapt" if adapts else "execute"

    def adapted(self, value: Json | Evaluation) -> None:
        """Set the input that adapt returned."""
        declared = self.scope.types[0]
        if declared is not None or type(value) not in ATOMS:
            value = _recorded(value, declared)
        self.input = value
        self.scope.receive(value)
        self.stage = "execute"

    def executed(self, execute: Step, value: Json | Evaluation) -> None:
        """Set the output of `execute`.

        Raises:
            StepError: if there is none because an inner loop ended without one.
        """
        declared = self.scope.types[1]
        if declared is None and type(value) in ATOMS:
            self.output = value
        else:
            self.output = _recorded(value, declared)
        if value is None and isinstance(execute, CompositeStep):
            self._refuse_no_output()
        self.stage = "evaluate"

    def evaluated(self, value: Json | Evaluation) -> None:
        """Set the evaluation: a score, a verdict or an Evaluation.

        Raises:
            StepError: for any other value.
        """
        self.evaluation = evaluation = as_evaluation(value)
        # One with a score or a verdict has a known field.
        known = evaluation.score is not None or evaluation.passed is not None
        if not known and type(value) is dict and (sentence := misspelling(value)):
            self.ctx.warn(sentence, code=UNKNOWN_FIELDS)

    def failed(self, error: StepError | Stopped | asyncio.CancelledError) -> None:
        """Set the failure, or the cut, by the error that ended a stage.

        Raises:
            CancelledError: if the task was cancelled, and not the run.
        """
        run = self.ctx.run
        if isinstance(error, StepError):
            failure = Failure.of(self.stage, error, redact=run.redact)
            # JSON has no such numbers, so the value was refused before it was read as an evaluation.
            if failure.kind == "not_json" and failure.message.startswith("output.metrics."):
                failure = replace(failure, kind="bad_metric")
            self.failure = run.clean(failure)
            self.cause = error.__cause__
            return
        self.cut = cut = run.stopped_by(error, self.ctx.path)
        # An inner loop that the same guard ended has an output, which is worth keeping.
        if self.stage == "execute":
            self.output = self._rescued(cut)
        self.failure = Failure(self.stage, "interrupted", cut.stop.detail, self.ctx.path)

    def iteration(self) -> Iteration:
        """Return its record: it ends now."""
        self.ended = self.ctx.run.now()
        item = new_iteration(
            self.scope.number,
            self.input,
            self.output,
            self.evaluation,
            self.failure,
            usage=self.ctx.account.iteration_usage,
            seconds=self.ended - self.began,
            interrupted=self.cut is not None,
            steps=self.scope.parts,
        )
        if self.scope.place is not None:
            item = self.scope.place.plan.recorded(item)
        if not self.candidates:
            return item
        chosen = next((one.number for one in self.candidates if one.state == "chosen"), None)
        return replace(item, candidate=chosen, candidates=self.candidates)

    def _refuse_no_output(self) -> None:
        """Raise the stop of an inner loop that ended without an output: there is nothing to evaluate."""
        for name, inner in self.scope.loops.items():
            if self.loops.get(name) is inner or inner.status is not Status.EXHAUSTED:
                continue
            if inner.output is None and inner.best is None:
                raise StepError(
                    f"{inner.name} ended without an output: {inner.detail}",
                    path=f"{self.ctx.path}/execute",
                    kind=inner.reason.value,
                )

    def _rescued(self, cut: Stopped) -> Json:
        """Return the output of the inner loop that the same guard interrupted."""
        inner = next(reversed(list(self.scope.loops.values())), None)
        return inner.output if inner is not None and inner.reason is cut.stop.reason else None


def _recorded(value: Json | Evaluation, declared: ValueType | None) -> Json:
    """Return a value as the record of an iteration has it, live and replayed.

    An Evaluation stays one only as the result of `evaluate`.
    """
    if type(value) is Evaluation:
        return value.to_json()
    if declared is not None:
        return declared.attach(value)
    return json_of(value) if type(value) in CARRIERS else value


# Nothing is left for further votes.
_USED_UP = (Reason.CANCELLED, Reason.TIMEOUT, Reason.DEADLINE, Reason.BUDGET)


async def evaluate_input(loop_run: LoopRun, evaluate: Step) -> Stop | None:
    """Evaluate the input before the first iteration; return the stop if it passes or has no verdict.

    Its effects are recorded at iteration 0, which has no execution and no record.
    """
    # Not the latest iteration, which a resumed loop has as its present one.
    loop, scope, replay = loop_run.loop, loop_run.scope, loop_run.run_state.replay
    given, present = scope.initial, (scope.number, scope.current, scope.history)
    scope.number, scope.current, scope.history = 0, given, History()
    loop_run.ctx.at(f"{loop_run.path}/0")
    try:
        value = await loop_run.ctx.call("evaluate", evaluate, given)
        evaluation = as_evaluation(value)
        if loop.measured is not None and loop.measured.confirm is not None:
            from .confirming import confirmed

            evaluation = await confirmed(loop_run, Iteration(0, given, given, evaluation))
        if loop.measured is not None:
            evaluation = loop.measured.scored(evaluation)
        # In runs of earlier versions, the sentences are no part of the evaluation of the input.
        if loop.sentences and (
            replay is None
            or not len(loop_run.history)
            or any(path.startswith(f"{loop_run.path}/0/until/") for path in replay.finished)
        ):
            item = Iteration(0, given, given, evaluation=evaluation)
            evaluation = await judge_sentences(loop_run, item, History())
    except StepError as error:
        # Before any cost: an evaluator that cannot judge the input will not judge an output.
        return loop_run.fail(error)
    except (Stopped, asyncio.CancelledError) as error:
        return loop_run.stop(error)
    finally:
        scope.number, scope.current, scope.history = present
    scope.compare_with(evaluation)
    loop_run.compare_with(evaluation)
    # A resumed loop needs the evaluation for comparisons, but its iterations decide.
    if len(loop_run.history):
        return None
    metrics = loop.measured
    if metrics is not None and metrics.objective and metrics.objective not in evaluation.metrics:
        # Before any cost: each iteration is compared with this value.
        detail = f"before the first iteration, {metrics.objective} has no value"
        why = shortened(" ".join(evaluation.feedback.split()), FEEDBACK_SHOWN)
        return Stop(Reason.EVALUATOR_UNUSABLE, f"{detail}: {why}" if why else detail)
    if not loop.satisfied_by(evaluation):
        return None
    return Stop(Reason.ALREADY_SATISFIED, "the evaluation passed before the first iteration")


async def judge_sentences(loop_run: LoopRun, item: Iteration, history: History) -> Evaluation:
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
    # The verdict of the evaluators without a model; None without one.
    checked = None
    if loop.evaluate is not None:
        checked = loop_run.scope.checked if loop.evaluate.asks_model else evaluation.passed
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


async def evaluate_output_again(
    loop_run: LoopRun, stop: Stop, output: Json, chosen: Iteration | None
) -> float | None:
    """Return the mean score of new votes on the output of an iteration, which did not take part in its choice.

    None if no evaluator scores the output, or if no time or budget is left.
    """
    loop = loop_run.loop
    if loop.evaluate is None or stop.reason in _USED_UP or loop_run.history.best is None:
        return None
    scores = []
    try:
        if loop_run.snapshots is not None and chosen is not None:
            await loop_run.snapshots.show(chosen.files)  # in place are those of the last iteration
        for number in range(1, loop.rejudge + 1):
            loop_run.ctx.at(f"{loop_run.path}/rejudge/{number}")
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
