"""Evaluators of documents: checks, checklists, scores, judges and confidence scorers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...engine.step import as_step
from ...evaluators.check import check
from ...evaluators.checklist import checklist
from ...evaluators.gates import gates
from ...evaluators.rubric.rubric import TOKENS, Confidence
from ...evaluators.score import score
from ...evaluators.test_report import share_passing
from ..schema.document import EvaluateSpec, ScoreSpec
from ..schema.evaluators import CheckSpec, ConfidenceSpec, JudgeSpec
from .compilation import Compilation, Path_
from .prompts import asked, compile_judge
from .tools import command_value

__all__ = ["compile_evaluators"]


def compile_evaluators(
    compilation: Compilation,
    evaluate: EvaluateSpec | list[EvaluateSpec] | None,
    path: Path_,
    judges: Sequence[JudgeSpec] = (),
) -> Any:
    """Compile evaluators in the order in which they are asked: the deterministic ones first."""
    given = evaluate if isinstance(evaluate, list) else [evaluate] if evaluate else []
    firm: list[Any] = []
    soft: list[Any] = []
    for i, item in enumerate(given):
        at = (*path, "evaluate", i) if isinstance(evaluate, list) else (*path, "evaluate")
        firm += _firm(compilation, item, at)
        soft += _soft(compilation, item, at)
    for judge in judges:
        soft.append(compile_judge(compilation, judge, (*path, "until")))
    found = [step for step in (*firm, *soft) if step is not None]
    if not found:
        return None
    return found[0] if len(found) == 1 else gates(*found)


def _firm(compilation: Compilation, spec: EvaluateSpec, path: Path_) -> list[Any]:
    made = []
    if spec.check is not None:
        made.append(_check(compilation, spec.check, (*path, "check")))
    if spec.checklist is not None:
        made.append(_checklist(compilation, spec.checklist, (*path, "checklist")))
    if spec.score is not None:
        made.append(_score(compilation, spec.score, (*path, "score")))
    if spec.python is not None:
        found = compilation.function((*path, "python"), spec.python)
        if found is not None:
            made.append(compilation.attempt(path, lambda: as_step(found, name="evaluate")))
    return made


def _soft(compilation: Compilation, spec: EvaluateSpec, path: Path_) -> list[Any]:
    made: list[Any] = []
    if spec.judge is not None:
        judge = JudgeSpec(criterion=spec.judge) if isinstance(spec.judge, str) else spec.judge
        made.append(compile_judge(compilation, judge, (*path, "judge")))
    if spec.confidence is not None:
        made.append(compile_confidence(compilation, spec.confidence, (*path, "confidence")))
    return made


def _check(compilation: Compilation, spec: CheckSpec, path: Path_) -> Any:
    parts = []
    for kind in spec.tests:
        value = getattr(spec, kind)
        at = (*path, kind.rstrip("_"))
        options: dict[str, Any] = {}
        if kind == "python":
            value = compilation.function(at, value)
            if value is None:
                continue
            made = compilation.attempt(at, partial(check, value, name=spec.name or ""))
        else:
            if kind == "command":
                value = _constant(compilation, value, at)
                cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
                env = {
                    k: command_value(compilation, (*path, "env", k), v) for k, v in spec.env.items()
                }
                options = {"cwd": cwd, "env": env, "timeout": spec.timeout}
            keyword = {kind.rstrip("_"): value}
            made = compilation.attempt(
                at, partial(check, name=spec.name or "", **keyword, **options)
            )
        parts.append(made)
    found = [part for part in parts if part is not None]
    return None if not found else found[0] if len(found) == 1 else gates(*found)


def _constant(compilation: Compilation, command: Any, path: Path_) -> Any:
    for text in [command] if isinstance(command, str) else command:
        if "{{" in text or "{%" in text:
            compilation.problem(
                path,
                "a template inside command text would let a value become a command; "
                "pass values by env or stdin",
            )
    return command


def _checklist(compilation: Compilation, specs: list[CheckSpec], path: Path_) -> Any:
    items: dict[str, Any] = {}
    weights: dict[str, float] = {}
    for i, spec in enumerate(specs):
        name = spec.name or ", ".join(f"{t.rstrip('_')} {getattr(spec, t)}" for t in spec.tests)
        if name in items:
            compilation.problem((*path, i), f"the checklist has two items named {name!r}")
            continue
        made = _check(compilation, spec, (*path, i))
        if made is not None:
            items[name], weights[name] = made, spec.weight
    return checklist(items, weights=weights) if items else None


def _score(compilation: Compilation, spec: ScoreSpec, path: Path_) -> Any:
    if spec.tests is not None:
        command = _constant(compilation, spec.tests, (*path, "tests"))
        cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
        if spec.report is not None:  # what leads out of the project is a problem
            compilation.inside(spec.report, (*path, "report"), folder=Path(cwd))
        return compilation.attempt(
            path,
            lambda: share_passing(command, report=spec.report, cwd=cwd, timeout=spec.timeout),
        )
    if spec.report is not None:
        compilation.problem(
            (*path, "report"), "report belongs to tests, which write it; give tests too"
        )
        return None
    of = None
    if spec.of is not None:
        of = compilation.action(spec.of, "of", (*path, "of"))
    low, high = spec.scale
    return compilation.attempt(
        path,
        lambda: score(spec.label, (low, high), pattern=spec.pattern or "", of=of),
    )


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
