"""What native documents say for loop nodes: `node`, `answer: criteria` and `templates: loop_node`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ..._regex import compile_pattern
from ...conditions import Condition, ScoreAtLeast
from ...documents.compiler.compilation import Compilation, TemplateLanguage
from ...documents.schema.document import Action, LoopSpec
from ...documents.schema.extensions import LessonsSpec, NodeSpec, PresetSpec
from ...documents.yaml.reader import Location
from ...engine.loop import Loop
from ...engine.step import Step
from ...evaluators.answers import Answer
from ...prompts.prompt import Prompt
from ...records.codec import Json
from .loop_node import (
    DEFAULT_METADATA,
    LoopNode,
    LoopNodeEvaluator,
    LoopNodeLessons,
    Scorer,
    Strategy,
)
from .presets import Validator, criteria_of, preset
from .templates import node_expression, node_fill, node_template

__all__ = ["LANGUAGE", "compile_criteria", "compile_node"]


LANGUAGE = TemplateLanguage(node_fill, node_expression)


def compile_criteria(
    compilation: Compilation, spec: Action, at: Location
) -> tuple[Answer, Callable[..., Prompt]] | None:
    """Return how the reply of a validator is read, and what makes the validator; None with problems."""
    value = spec.preset or PresetSpec()
    criteria = compilation.attempt(
        (*at, "preset"), lambda: criteria_of(value.level, value.context, value.weights)
    )
    if criteria is None:
        return None
    reading = Answer("criteria", criteria.instruction, lambda reply: criteria.read(reply.text))
    return reading, partial(Validator, criteria)


def compile_node(
    compilation: Compilation, spec: LoopSpec, path: Location, execute: Step | None
) -> tuple[LoopNodeEvaluator | None, Condition, Callable[[Loop], LoopNode]]:
    """Return the evaluator of a loop node, None with problems, its goal, and what makes the node of its loop."""
    assert spec.node is not None
    node = spec.node

    def whole(loop: Loop) -> LoopNode:
        lessons = _lessons(node.lessons)
        return LoopNode(loop, node.threshold, lessons, node.timeout_score, loop.required)

    evaluator = _evaluator(compilation, spec, node, path, execute)
    return evaluator, ScoreAtLeast(node.threshold), whole


def _evaluator(
    compilation: Compilation, spec: LoopSpec, node: NodeSpec, path: Location, execute: Step | None
) -> LoopNodeEvaluator | None:
    """Compile the evaluator of a loop node, which scores the outputs of its agents; None if it has problems."""
    for name in ("evaluate", "adapt"):
        if name in spec.model_fields_set:
            what = f"a loop node is scored by the output of its agents and keeps its input; remove {name}"
            compilation.problem((*path, name), what)
            return None
    at = (*path, "node")
    before = len(compilation.problems)
    _check_texts(compilation, node, at)
    weights: dict[str, float] | None = {}
    if (value := node.preset) is not None:
        place = (*at, "preset", *(["weights"] if value.weights else []))
        weights = compilation.attempt(
            place, lambda: preset(value.level, value.context, value.weights)
        )
    # Checked here and not in the schema, because each end is valid alone.
    low, high = node.scale
    if not low < high:
        compilation.problem(
            (*at, "scale"), f"{node.scale} is not a scale; write two numbers, the lower first"
        )
        return None
    scale = (float(low), float(high))
    options: dict[str, Json] = {}
    if node.strategies is not None:
        options["strategies"] = tuple(
            Strategy(tuple(s.patterns), s.key, tuple(s.agents)) for s in node.strategies
        )
    if len(compilation.problems) > before:
        return None
    scorer = Scorer(
        first=tuple(node.first),
        weights=weights or {},
        fallback=node.fallback_score,
        scale=scale,
        earliest=node.prefer == "first",
        agree=node.agreement,
        **options,
    )
    re_ask = node.score_missing == "re_ask"
    # The agents of a loop inside are not scored by this node.
    asked = (dict(_prompts(execute)) if execute is not None else {}) if re_ask else None
    if asked == {} and execute is not None and not compilation.gaps:
        what = "re_ask repeats a prompt, but no agent of this loop is a prompt"
        compilation.problem((*at, "score_missing"), what)
    return LoopNodeEvaluator(scorer, _lessons(node.lessons), prompts=asked)


def _prompts(step: Step) -> Iterator[tuple[str, Prompt]]:
    """Iterate over the prompts in a step by name, without those of loops inside it."""
    if isinstance(step, Prompt):
        yield step.name, step
    elif not isinstance(step, Loop | LoopNode):
        for part in step.parts():
            yield from _prompts(part)


def _lessons(spec: LessonsSpec) -> LoopNodeLessons:
    """Return the lessons that a loop node keeps of each iteration."""
    patterns = {str(category): tuple(texts) for category, texts in spec.patterns.items()}
    entry = DEFAULT_METADATA if spec.entry is None else spec.entry
    return LoopNodeLessons(patterns, entry, spec.longest, spec.most, spec.persist)


def _check_texts(compilation: Compilation, node: NodeSpec, at: Location) -> None:
    """Report each invalid pattern and template at its place."""
    for i, strategy in enumerate(node.strategies or ()):
        for j, text in enumerate(strategy.patterns):
            compilation.attempt(
                (*at, "strategies", i, "patterns", j), partial(compile_pattern, text)
            )
    lessons = (*at, "lessons")
    for category, texts in node.lessons.patterns.items():
        for j, text in enumerate(texts):
            compilation.attempt((*lessons, "patterns", category, j), partial(compile_pattern, text))
    for name, text in (node.lessons.entry or {}).items():
        if isinstance(text, str):
            compilation.attempt((*lessons, "entry", name), partial(node_template, text))
