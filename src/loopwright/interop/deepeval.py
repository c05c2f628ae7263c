"""Metrics of DeepEval as evaluators of a loop."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.functions import Purpose
from ..records import Evaluation, Usage
from .objects import EvaluatorStep, identity_text, text_of

__all__ = ["DeepEvalAdapter", "MetricStep"]

_IDENTITY = ("name", "criteria", "evaluation_steps", "threshold", "strict_mode", "evaluation_model")


class DeepEvalAdapter:
    """Makes evaluators of DeepEval metrics."""

    roots = ("deepeval",)

    def matches(self, target: object) -> bool:
        return not isinstance(target, type) and callable(getattr(target, "a_measure", None))

    def step(self, target: Any, purpose: Purpose) -> EvaluatorStep:
        members = {name: getattr(target, name, None) for name in _IDENTITY}
        calls_model = getattr(target, "model", None) is not None or bool(
            members["evaluation_model"]
        )
        unreported = calls_model and not getattr(target, "using_native_model", False)
        name = str(getattr(target, "__name__", "") or type(target).__name__)
        return MetricStep(
            target=target,
            name=name.replace("/", "-"),
            adapter="deepeval/1",
            identity=(type(target).__qualname__, identity_text(members)),
            unreported="DeepEval does not report the usage of its model" if unreported else "",
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class MetricStep(EvaluatorStep):
    """A DeepEval metric as an evaluator. Each call works on a copy, as a metric keeps its last result."""

    async def call(self, value: Any, ctx: Context) -> Evaluation:
        # Importing the library takes seconds, and only a call needs it.
        from deepeval.test_case import LLMTestCase

        expected = self.expectation(ctx)
        case = LLMTestCase(
            input=text_of(self.input(ctx)),
            actual_output=text_of(value),
            expected_output=None if expected is None else text_of(expected),
        )
        metric = copy.copy(self.target)
        # The library prints a progress bar into the output of the program; some metrics lack the parameter.
        parameters = inspect.signature(metric.a_measure).parameters.values()
        quiet = any(
            one.name == "_show_indicator" or one.kind is one.VAR_KEYWORD for one in parameters
        )
        options = {"_show_indicator": False} if quiet else {}
        try:
            await metric.a_measure(case, **options)
        finally:
            ctx.spend(_spent(metric))
        passed = metric.is_successful()
        # Without a score there is nothing that could be a success or a failure.
        passed = None if passed is None or metric.score is None else bool(passed)
        return self.evaluation(metric.score, passed=passed, feedback=str(metric.reason or ""))


def _spent(metric: Any) -> Usage:
    """Return the cost that the metric computed; how many calls it took, it does not say."""
    usd = getattr(metric, "evaluation_cost", None)
    inputs, outputs = (
        int(getattr(metric, name, None) or 0) for name in ("input_tokens", "output_tokens")
    )
    called = bool(usd or inputs or outputs)
    return Usage(
        calls=int(called),
        input_tokens=inputs,
        output_tokens=outputs,
        usd=float(usd or 0.0),
        unpriced=int(called and usd is None),
    )
