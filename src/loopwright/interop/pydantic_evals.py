"""Evaluators of pydantic-evals as evaluators of a loop."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.functions import Purpose
from ..errors import BROKEN_EVALUATOR, ConfigurationError, EvaluationError
from ..records import Criterion, Evaluation, Usage
from .objects import EvaluatorStep, charged

__all__ = ["PydanticEvalsAdapter", "PydanticEvaluatorStep"]

# The address in the repr of a function differs in each process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class PydanticEvalsAdapter:
    """Makes evaluators of pydantic-evals evaluators."""

    roots = ("pydantic_evals",)

    def matches(self, target: object) -> bool:
        return not isinstance(target, type) and callable(getattr(target, "evaluate_async", None))

    def step(self, target: Any, purpose: Purpose) -> EvaluatorStep:
        name = type(target).__name__
        if name == "HasMatchingSpan":
            raise ConfigurationError(
                f"{name}: Loopwright has not the spans that it reads. Export the run's own traces instead."
            )
        return PydanticEvaluatorStep(
            target=target,
            name=name,
            adapter="pydantic-evals/1",
            identity=(_ADDRESS.sub("", repr(target)),),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PydanticEvaluatorStep(EvaluatorStep):
    """A pydantic-evals evaluator as an evaluator."""

    async def call(self, value: Any, ctx: Context) -> Evaluation:
        if self.name == "MaxDuration" and (ctx.scope is None or ctx.scope.effort is None):
            raise EvaluationError(
                f"{self.name} reads the duration of the task on a case of a data set. In a loop, use Timeout, or a step "
                "with a time limit.",
                kind=BROKEN_EVALUATOR,
                retryable=False,
            )
        with _requests() as messages:
            try:
                result = await self.target.evaluate_async(self._context(value, ctx))
            finally:
                for message in messages:
                    if getattr(message, "kind", "") == "response":
                        usage = Usage(1, message.usage.input_tokens, message.usage.output_tokens)
                        url = getattr(message, "provider_url", None) or ""
                        provider, model = message.provider_name or "", message.model_name or ""
                        ctx.spend(charged(ctx, usage, provider=provider, model=model, base_url=url))
        return self._read(result)

    def _context(self, value: Any, ctx: Context) -> Any:
        from pydantic_evals.evaluators import EvaluatorContext
        from pydantic_evals.otel.span_tree import SpanTree

        case, effort = ctx.case, None if ctx.scope is None else ctx.scope.effort
        values = {
            "name": self.name if case is None else case.id,
            "inputs": self.input(ctx),
            "output": value,
            "expected_output": self.expectation(ctx),
            "metadata": None if case is None else dict(case.metadata),
            "duration": 0.0 if effort is None else effort()[0],
            "_span_tree": SpanTree(),
            "attributes": {},
            "metrics": {},
        }
        # The fields differ between minor versions of the library.
        fields = {field.name for field in dataclasses.fields(EvaluatorContext)}
        return EvaluatorContext(**{key: item for key, item in values.items() if key in fields})

    def _read(self, result: Any) -> Evaluation:
        if not isinstance(result, Mapping):
            value, reason = _split(result)
            if isinstance(value, bool):
                return self.evaluation(None, passed=value, feedback=reason)
            if isinstance(value, int | float):
                return self.evaluation(value, feedback=reason)
            raise EvaluationError(
                f"{self.name} returned {value!r:.60}, which is neither a number nor True or False",
                kind="bad_evaluation",
                retryable=False,
            )
        parts = {str(name): _split(item) for name, item in result.items()}
        criteria = tuple(
            Criterion(name, value, "" if value else reason or "it does not hold")
            for name, (value, reason) in parts.items()
            if isinstance(value, bool)
        )
        others = {key: item for key, (item, _) in parts.items() if not isinstance(item, bool)}
        # Several scores have no defined mean: they may be on different scales.
        scores = [item for item in others.values() if isinstance(item, int | float)]
        return self.evaluation(
            scores[0] if len(scores) == 1 else None,
            passed=all(criterion.passed for criterion in criteria) if criteria else None,
            feedback="\n".join(reason for _, reason in parts.values() if reason),
            criteria=criteria,
            details=others,
        )


def _split(result: Any) -> tuple[Any, str]:
    """Return the value and the reason of a result."""
    if hasattr(result, "reason") and hasattr(result, "value"):
        return result.value, result.reason or ""
    return result, ""


def _requests() -> Any:
    """Return a context manager for the messages of the agent that an evaluator calls, if it calls one."""
    try:
        from pydantic_ai import capture_run_messages
    except ImportError:
        return contextlib.nullcontext(())
    return capture_run_messages()
