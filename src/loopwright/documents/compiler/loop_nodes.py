"""Loop nodes of native documents: how their rounds are scored, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ..._regex import compile_pattern
from ...engine.loop import Loop
from ...engine.step import Step
from ...evaluators.presets import preset
from ...prompts.prompt import Prompt
from ..schema.document import LoopSpec
from ..schema.loop_nodes import LessonsSpec, NodeSpec, PresetSpec
from ..steps.loop_node import LoopNode, LoopNodeEvaluator, LoopNodeLessons, Scorer, Strategy
from ..steps.loop_node.lessons import DEFAULT_METADATA
from ..steps.loop_node.templates import node_template
from .compilation import Compilation, Path_

__all__ = ["as_node", "scored"]


def scored(
    compilation: Compilation, spec: LoopSpec, node: NodeSpec, path: Path_, execute: Step | None
) -> LoopNodeEvaluator | None:
    """Compile the scoring of what `execute` gives, of a loop node; None if problems were found."""
    for name in ("evaluate", "adapt"):
        if name in spec.model_fields_set:
            what = f"a loop node is scored by what its agents write, and its input stays: it has no {name}"
            compilation.problem((*path, name), what)
            return None
    at = (*path, "node")
    before = len(compilation.problems)
    _texts(compilation, node, at)
    weights = {} if node.preset is None else _weights(compilation, node.preset, (*at, "preset"))
    low, high = node.scale
    if not low < high:
        compilation.problem(
            (*at, "scale"), f"{node.scale} is no scale; write two numbers, the lower first"
        )
        return None
    scale = (float(low), float(high))
    options: dict[str, Any] = {} if node.strategies is None else {"strategies": _strategies(node)}
    if len(compilation.problems) > before:
        return None
    scorer = Scorer(
        first=tuple(node.first),
        weights=weights,
        fallback=node.fallback_score,
        scale=scale,
        earliest=node.prefer == "first",
        agree=node.agreement,
        **options,
    )
    re_ask = node.score_missing == "re_ask"
    asked = (dict(_prompts(execute)) if execute is not None else {}) if re_ask else None
    if asked == {} and execute is not None and not compilation.gaps:
        what = "re_ask asks a prompt again, and no agent of this loop is one"
        compilation.problem((*at, "score_missing"), what)
    return LoopNodeEvaluator(scorer, lessons(node.lessons), prompts=asked)


def _weights(compilation: Compilation, given: PresetSpec, at: Path_) -> Mapping[str, float]:
    """Return the weights of a preset's criteria; none with a problem."""
    place = (*at, "weights") if given.weights else at
    found = compilation.attempt(place, lambda: preset(given.level, given.context, given.weights))
    return found or {}


def _prompts(step: Step) -> Iterator[tuple[str, Prompt]]:
    """Iterate over the prompts in a step by name, but for those of loops in it."""
    if isinstance(step, Prompt):
        yield step.name, step
    elif not isinstance(step, Loop | LoopNode):
        for part in step.parts():
            yield from _prompts(part)


def as_node(loop: Loop, node: NodeSpec) -> LoopNode:
    """Return a loop as a node, which gives the documented output object."""
    return LoopNode(loop, node.threshold, lessons(node.lessons), node.timeout_score, loop.required)


def lessons(spec: LessonsSpec) -> LoopNodeLessons:
    """Return what is kept of rounds."""
    patterns = {str(category): tuple(texts) for category, texts in spec.patterns.items()}
    entry = DEFAULT_METADATA if spec.entry is None else spec.entry
    return LoopNodeLessons(patterns, entry, spec.longest, spec.most, spec.persist)


def _strategies(node: NodeSpec) -> tuple[Strategy, ...]:
    given = node.strategies or ()
    return tuple(Strategy(tuple(s.patterns), s.key, tuple(s.agents)) for s in given)


def _texts(compilation: Compilation, node: NodeSpec, at: Path_) -> None:
    """Report each pattern that is no regular expression, and each template that cannot be read, at its own place."""
    for i, strategy in enumerate(node.strategies or ()):
        for j, text in enumerate(strategy.patterns):
            compilation.attempt(
                (*at, "strategies", i, "patterns", j), partial(compile_pattern, text)
            )
    kept = (*at, "lessons")
    for category, texts in node.lessons.patterns.items():
        for j, text in enumerate(texts):
            compilation.attempt((*kept, "patterns", category, j), partial(compile_pattern, text))
    for name, text in (node.lessons.entry or {}).items():
        if isinstance(text, str):
            compilation.attempt((*kept, "entry", name), partial(node_template, text))
