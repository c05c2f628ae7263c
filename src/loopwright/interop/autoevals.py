"""Scorers of autoevals as evaluators of a loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..engine.context import Context
from ..engine.functions import Purpose
from ..records import Evaluation
from .objects import EvaluatorStep, identity_text

__all__ = ["AutoevalsAdapter", "ScorerStep"]

# Classes whose calls of a model autoevals does not report.
_CLASSES_WITH_MODELS = {"OpenAIScorer", "OpenAILLMScorer", "EmbeddingSimilarity"}
# The members that change a score; others, such as clients and keys, differ between processes.
_IDENTITY = (
    "name",
    "model",
    "engine",
    "messages",
    "choice_scores",
    "schema",
    "threshold",
    "pairwise_scorer",
)


class AutoevalsAdapter:
    """Makes evaluators of autoevals scorers."""

    roots = ("autoevals",)

    def matches(self, target: object) -> bool:
        return not isinstance(target, type) and callable(getattr(target, "eval_async", None))

    def step(self, target: Any, purpose: Purpose) -> EvaluatorStep:
        members = {name: getattr(target, name, None) for name in _IDENTITY}
        return ScorerStep(
            target=target,
            # A slash would begin a new part of the path.
            name=str(getattr(target, "name", "") or type(target).__name__).replace("/", "-"),
            adapter="autoevals/1",
            identity=(type(target).__qualname__, identity_text(members)),
            unreported="autoevals does not report the usage of its model"
            if _calls_model(target)
            else "",
            scores_only=True,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class ScorerStep(EvaluatorStep):
    """An autoevals scorer as an evaluator."""

    async def call(self, value: Any, ctx: Context) -> Evaluation:
        result = await self.target.eval_async(
            output=value, expected=self.expectation(ctx), input=self.input(ctx)
        )
        metadata = result.metadata or {}
        # Scorers that ask a model put its explanation there.
        reason = metadata.get("rationale") or getattr(result, "error", None) or ""
        return self.evaluation(result.score, feedback=str(reason))


def _calls_model(target: object) -> bool:
    own = {base.__name__ for base in type(target).__mro__}
    # Scorers of lists contain a scorer for pairs, which may call a model.
    parts = [part for part in vars(target).values() if hasattr(part, "eval_async")]
    return not own.isdisjoint(_CLASSES_WITH_MODELS) or any(
        _calls_model(part) for part in parts if part is not target
    )
