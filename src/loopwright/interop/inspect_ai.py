"""Scorers of Inspect as evaluators of a loop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.functions import Purpose
from ..records import Evaluation
from .objects import EvaluatorStep, identity_text, text_of

__all__ = ["InspectAdapter", "InspectScorerStep"]

_INFO, _PARAMS = "__registry_info__", "__registry_params__"
# Correct, incorrect, partially correct, no answer: only the first is a pass.
_VERDICTS = {"C": True, "I": False, "P": False, "N": False}  # of Inspect's grades


class InspectAdapter:
    """Makes evaluators of Inspect scorers."""

    roots = ("inspect_ai",)

    def matches(self, target: object) -> bool:
        return callable(target) and getattr(getattr(target, _INFO, None), "type", "") == "scorer"

    def step(self, target: Any, purpose: Purpose) -> EvaluatorStep:
        registered = str(getattr(target, _INFO).name)
        name = registered.rpartition("/")[2]
        params = getattr(target, _PARAMS, {})
        calls_model = name.startswith("model_graded")
        return InspectScorerStep(
            target=target,
            name=name,
            adapter="inspect/1",
            identity=(registered, identity_text(params)),
            unreported="Inspect does not report the usage of its grader" if calls_model else "",
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectScorerStep(EvaluatorStep):
    """An Inspect scorer as an evaluator."""

    async def call(self, value: Any, ctx: Context) -> Evaluation:
        from inspect_ai.model import ModelOutput
        from inspect_ai.scorer import Target, value_to_float
        from inspect_ai.solver import TaskState

        state = TaskState(
            # The state requires a model, which a scorer of a finished output does not call.
            model="none/none",  # type: ignore[arg-type, unused-ignore]
            sample_id=1,
            epoch=1,
            input=text_of(self.input(ctx)),
            messages=[],
            output=ModelOutput.from_content("none", text_of(value)),
        )
        expected = self.expectation(ctx)
        targets = list(map(text_of, expected)) if isinstance(expected, list) else text_of(expected)
        score = await self.target(state, Target(targets))
        if score is None:
            return self.evaluation(None)
        grade = score.value
        verdict = (
            grade
            if isinstance(grade, bool)
            else _VERDICTS.get(grade)
            if isinstance(grade, str)
            else None
        )
        number = value_to_float()(grade) if isinstance(grade, str | int | float) else None
        # Inspect uses NaN for "not scored"; as a score it would make every comparison false.
        if number is not None and math.isnan(number):
            number = None
        return self.evaluation(number, passed=verdict, feedback=score.explanation or "")
