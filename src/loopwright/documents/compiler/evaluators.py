"""Confidence scorers of native documents."""

from __future__ import annotations

from ...evaluators.rubric.rubric import TOKENS, Confidence
from ..schema.evaluators import ConfidenceSpec
from .compilation import Compilation, Path_
from .prompts import asked

__all__ = ["compile_confidence"]


def compile_confidence(
    compilation: Compilation, spec: ConfidenceSpec, at: Path_
) -> Confidence | None:
    """Compile a confidence scorer; None if problems were found."""
    asking = asked(compilation, spec, at, None, temperature=spec.temperature, cap=TOKENS)
    if asking is None:
        return None
    return compilation.attempt(
        at,
        lambda: Confidence(
            spec.criteria,
            asking=asking,
            goal=spec.goal or "",
            weights=spec.weights,
            threshold=spec.threshold,
            strict=spec.strict,
        ),
    )
