"""Confidence scorers of native documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..evaluators.confidence import Confidence
from .native_confidence import ConfidenceSpec
from .prompting import asked

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_confidence"]


def compile_confidence(compiler: Compiler, spec: ConfidenceSpec, at: Path_) -> Confidence | None:
    """Compile a confidence scorer; None if problems were found."""
    asking = asked(
        compiler, spec, at, None, temperature=spec.temperature, max_tokens=spec.max_tokens
    )
    if asking is None:
        return None
    return compiler.attempt(
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
