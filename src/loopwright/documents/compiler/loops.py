"""Loops of documents: execute, adapt, memory, and the scoring of loop nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from ..._regex import compile_pattern
from ...conditions import (
    MaxIterations,
    Passed,
    ScoreAtLeast,
    has_goal,
    tag_of,
)
from ...engine import adapters
from ...engine.loop import Loop, any_of
from ...engine.loop_memory import LoopWithMemory, remembering
from ...engine.step import FunctionStep
from ...evaluators.presets import preset
from ...prompts.prompt import Prompt
from ..schema.document import Action, LoopSpec
from ..schema.evaluators import AdaptSpec, JudgeSpec
from ..schema.loop_nodes import LessonsSpec, LoopMemorySpec, NodeSpec, PresetSpec
from ..schema.traverse import condition_limit, evaluators
from ..steps.loop_node import LoopNode, LoopNodeEvaluator, LoopNodeLessons, Scorer, Strategy
from ..steps.loop_node.lessons import DEFAULT_METADATA
from ..steps.loop_node.templates import node_template
from ..steps.steps import SetValue
from .compilation import Compilation, Path_
from .conditions import compile_conditions, compile_until
from .evaluators import compile_evaluators

__all__ = ["compile_loop"]


def remembers(spec: LoopSpec) -> bool:
    """Whether a loop is given the lessons of earlier runs."""
    return spec.persist_across_runs or spec.memory is not None


def with_memory(
    compilation: Compilation, spec: LoopSpec, loop: Loop | LoopNode
) -> Loop | LoopNode | LoopWithMemory:
    """Return a loop with its memory, if it has one."""
    if not remembers(spec):
        return loop
    given = spec.memory or LoopMemorySpec()
    project = compilation.project
    document = project.documents[str(project.open[-1])].name
    space = given.space or f"{document}/{loop.name}"
    return remembering(loop, space=space, most=given.most, facts=given.facts)


def compile_loop(
    compilation: Compilation, action: Action, name: str, at: Path_
) -> Loop | LoopNode | LoopWithMemory | None:
    """Compile a loop; None if problems were found."""
    assert action.loop is not None
    spec, path = action.loop, (*at, "loop")
    compilation = compilation.knowing(["loop", *(["memory"] if remembers(spec) else [])])
    execute = compilation.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    judges, until = compile_until(compilation, spec, path)
    evaluate = compile_evaluators(compilation, spec.evaluate, path, judges)
    adapt = _adapt(compilation, spec, path)
    guards = compile_conditions(compilation, spec.guards, (*path, "guards"))
    if spec.max_iterations is not None:
        until = any_of(until, MaxIterations(spec.max_iterations))
    if spec.node is not None:
        evaluate = scored(compilation, spec, spec.node, path, execute)
        until = any_of(ScoreAtLeast(spec.node.threshold), until)
    _reachable(compilation, spec, path)
    if execute is None:
        return None
    options = {name: getattr(spec, name) for name in _SAME}
    if evaluate is not None and not (has_goal(until) or has_goal(guards)):
        until = any_of(until, Passed())  # said here, as `check` says what Loop would warn of
    stages = (execute, evaluate, adapt, until, guards, name)
    made = compilation.attempt(path, lambda: Loop(*stages, rejudge=_rejudge(spec), **options))
    if made is None:
        return None
    _judged(compilation, made, path)
    whole = made if spec.node is None else as_node(made, spec.node)
    return with_memory(compilation, spec, whole)


def _judged(compilation: Compilation, loop: Loop, path: Path_) -> None:
    """Note the conditions of success that read an evaluation, where the loop makes none."""
    if loop.evaluate is not None:
        return
    for goal in loop.goals:
        if goal.reads:
            what = f"{tag_of(type(goal))} can never hold: the loop has no evaluate; add one, or leave it out"
            compilation.project.notes.append(compilation.source.problem((*path, "until"), what))


# What a loop of Python calls as a document does.
_SAME = (
    "on_failure",
    "max_retries",
    "retry_delay",
    "keep",
    "min_iterations",
    "max_failures",
    "required",
    "approve",
)


def _reachable(compilation: Compilation, spec: LoopSpec, path: Path_) -> None:
    """Report a least number of iterations that the loop's own limit forbids."""
    limit = condition_limit(spec)
    if spec.min_iterations > limit:
        what = f"min_iterations: {spec.min_iterations} is above the limit of {limit}"
        compilation.problem((*path, "min_iterations"), f"{what}, which ends the loop first")


def _rejudge(spec: LoopSpec) -> int:
    """Return how often the winner is judged again: as often as the judge that wants most."""
    judges = [item.judge for item in evaluators(spec)]
    return max((judge.rejudge for judge in judges if isinstance(judge, JudgeSpec)), default=0)


def _adapt(compilation: Compilation, spec: LoopSpec, path: Path_) -> Any:
    at = (*path, "adapt")
    if spec.adapt is None:
        return None
    if isinstance(spec.adapt, str):
        return getattr(adapters, spec.adapt)
    return _made_adapt(compilation, spec.adapt, at)


def _made_adapt(compilation: Compilation, spec: AdaptSpec, at: Path_) -> Any:
    if spec.python is not None:
        found = compilation.function((*at, "python"), spec.python)
        if found is None or hasattr(found, "effect"):
            return found
        return compilation.attempt(at, lambda: FunctionStep(found, name="adapt"))
    if spec.rotate is not None:
        strategies = spec.rotate
        return compilation.attempt((*at, "rotate"), lambda: adapters.rotate(*strategies))
    if spec.merge is not None:
        part = compilation.filled((*at, "merge"), spec.merge)
        return adapters.merge(SetValue("merge", part))
    return SetValue("adapt", compilation.filled((*at, "set"), spec.set))


def scored(
    compilation: Compilation, spec: LoopSpec, node: NodeSpec, path: Path_, execute: Any
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
    asked = dict(_prompts(execute)) if node.score_missing == "re_ask" else None
    if asked == {} and execute is not None and not compilation.gaps:
        what = "re_ask asks a prompt again, and no agent of this loop is one"
        compilation.problem((*at, "score_missing"), what)
    return LoopNodeEvaluator(scorer, lessons(node.lessons), asked=asked)


def _weights(compilation: Compilation, given: PresetSpec, at: Path_) -> Mapping[str, float]:
    """Return the weights of a preset's criteria; none with a problem."""
    place = (*at, "weights") if given.weights else at
    found = compilation.attempt(place, lambda: preset(given.level, given.context, given.weights))
    return found or {}


def _prompts(step: Any) -> Iterator[tuple[str, Prompt]]:
    """Iterate over the prompts in a step by name, but for those of loops in it."""
    if isinstance(step, Prompt):
        yield step.name, step
    elif not isinstance(step, Loop | LoopNode):
        for part in getattr(step, "made_of", tuple)():
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
