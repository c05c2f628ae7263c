"""One iteration of a loop while it runs: its stages, and the failure or cut that ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ..errors import StepError, Stopped
from ..records import Evaluation, Failure, Iteration, Status, as_evaluation
from ..records.codec import ATOMS, Json
from ..records.evaluation import misspelling
from ..records.iteration import new_iteration
from ..records.typed import CARRIERS, ValueType, json_of
from .context import Context
from .step import CompositeStep, Step

__all__ = ["Attempt", "Call"]

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
        self.evaluation: Evaluation | None = None
        self.failure: Failure | None = None
        self.cut: Stopped | None = None
        self.cause: BaseException | None = None
        self.input = self.scope.current = value
        self.loops = self.scope.loops  # those that ended in earlier iterations
        self.stage = "adapt" if adapts else "execute"

    def adapted(self, value: Json | Evaluation) -> None:
        """Set the input that adapt returned."""
        declared = self.scope.types[0]
        if declared is not None or type(value) not in ATOMS:
            value = _recorded(value, declared)
        self.input = self.scope.current = value
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
        self.evaluation = as_evaluation(value)
        if type(value) is dict and (sentence := misspelling(value)):
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
        return new_iteration(
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
