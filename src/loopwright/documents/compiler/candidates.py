"""Candidates of loops of documents; only documents with `candidates` load this module."""

from __future__ import annotations

from typing import Any

from ...conditions import Budget
from ...engine.candidates import Candidates, Combine, Duel
from ..schema.document import LoopSpec, PickSpec
from ..schema.traverse import several_of
from ..yaml.reader import Location
from .compilation import Compilation
from .loops import compile_conditions
from .prompts import compile_pair_judge

__all__ = ["compile_candidates"]


def compile_candidates(
    compilation: Compilation, spec: LoopSpec, at: Location
) -> Candidates | int | None:
    """Compile the candidates of a loop; None if they have problems."""
    several = several_of(spec)
    if several is None:
        return spec.candidates  # type: ignore[return-value]  # a number
    pick: Any = several.pick
    if several.judge is not None:
        judge = compile_pair_judge(compilation, several.judge, (*at, "judge"))
        pick = judge and Duel(judge)
    elif several.combine is not None:
        step = compilation.action(several.combine, "combine", (*at, "combine"))
        pick = step and Combine(step)
    elif isinstance(pick, PickSpec):
        pick = compilation.function((*at, "pick", "python"), pick.python)
    rule = None
    if several.stop_rest != "never":
        rule = compile_conditions(compilation, several.stop_rest, (*at, "stop_rest"))
    if pick is None or (rule is None and several.stop_rest != "never"):
        return None
    numbers = several.model_dump(include={"n", "first", "at_once", "min_ok"})
    budget = None if several.budget is None else Budget(**several.budget.model_dump())
    return compilation.attempt(
        at,
        lambda: Candidates(**numbers, vary=several.vary, pick=pick, stop_rest=rule, budget=budget),
    )
