"""Loops of documents: execute, adapt, memory, and the scoring of loop nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import cast

from ..._regex import compile_pattern
from ...conditions import (
    MaxIterations,
    Passed,
    ScoreAtLeast,
    has_goal,
    questions_in,
    tag_of,
)
from ...dialects.orka.presets import preset
from ...engine import adapters
from ...engine.loop import FAILURES_IN_A_ROW, Loop, any_of
from ...engine.loop_memory import LoopWithMemory, remembering
from ...engine.loop_options import Impossible, LoopDeclaration, OnStall, Undecided, refuse_to_act
from ...engine.step import FunctionStep, Step, as_step
from ...prompts.prompt import Prompt
from ...records.codec import Json
from ..schema.document import Action, LoopSpec
from ..schema.evaluators import AdaptSpec, JudgeSpec
from ..schema.loop_nodes import LessonsSpec, LoopMemorySpec, NodeSpec, PresetSpec
from ..schema.traverse import condition_limit, evaluators
from ..steps.loop_node import LoopNode, LoopNodeEvaluator, LoopNodeLessons, Scorer, Strategy
from ..steps.loop_node.loop_node import DEFAULT_METADATA
from ..steps.loop_node.template_functions import node_template
from ..steps.steps import SetValue
from ..yaml.source import Location
from .compilation import Compilation
from .conditions import compile_conditions, compile_until, sentences_as_judges
from .evaluators import compile_evaluators
from .metrics import metric_options
from .workspaces import compile_workspace

__all__ = ["compile_loop"]


def has_memory(spec: LoopSpec) -> bool:
    """Return whether a loop receives the lessons of earlier runs."""
    return spec.persist_across_runs or spec.memory is not None


def with_memory(
    compilation: Compilation, spec: LoopSpec, loop: Loop | LoopNode
) -> Loop | LoopNode | LoopWithMemory:
    """Return a loop with its memory, or the loop itself if it has none."""
    if not has_memory(spec):
        return loop
    value = spec.memory or LoopMemorySpec()
    project = compilation.project
    document = project.documents[str(project.open[-1])].name
    # Both names: loops of different documents often have the same name, such as `refine`.
    space = value.space or f"{document}/{loop.name}"
    return remembering(loop, space=space, most=value.most, facts=value.facts)


def compile_loop(
    compilation: Compilation, action: Action, name: str, at: Location
) -> Loop | LoopNode | LoopWithMemory | None:
    """Compile a loop; None if it has problems."""
    assert action.loop is not None
    spec, path = action.loop, (*at, "loop")
    compilation = compilation.with_names(["loop", *(["memory"] if has_memory(spec) else [])])
    if spec.workspace is not None:
        compilation = replace(compilation, in_workspace=True)
    execute = compilation.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    if compilation.project.settings.former:
        judges, until = sentences_as_judges(compilation, spec, path)
        evaluate = compile_evaluators(compilation, spec.evaluate, path, judges)
    else:
        until = compile_until(compilation, spec, path)
        asks = any(True for _ in questions_in(until))
        evaluate = compile_evaluators(compilation, spec.evaluate, path, gated=asks)
    adapt = _adapt(compilation, spec, path)
    guards = compile_conditions(compilation, spec.guards, (*path, "guards"))
    if spec.max_iterations is not None:
        until = any_of(until, MaxIterations(spec.max_iterations))
    if spec.node is not None:
        evaluate = compile_node_evaluator(compilation, spec, spec.node, path, execute)
        until = any_of(ScoreAtLeast(spec.node.threshold), until)
    _check_min_iterations(compilation, spec, path)
    if execute is None:
        return None
    options = {name: getattr(spec, name) for name in _SAME} | _policies(spec)
    if spec.max_failures == "none":
        former = compilation.project.settings.former
        options["max_failures"] = FAILURES_IN_A_ROW if former else None
    options["workspace"] = compile_workspace(compilation, spec.workspace, (*path, "workspace"))
    measured = metric_options(compilation, spec, path)
    if measured is None:
        return None
    options |= measured
    # With an objective, the loop looks for the best value until a limit ends it.
    if evaluate is not None and not (has_goal(until) or has_goal(guards) or spec.optimises):
        # `Loop` adds it too, but with a warning, which `lints` reports with its place instead.
        until = any_of(until, Passed())
    stages = (execute, evaluate, adapt, until, guards, name)
    result = compilation.attempt(path, lambda: Loop(*stages, rejudge=_rejudge(spec), **options))
    if result is None:
        return None
    if spec.explore and not compilation.in_workspace:
        # The run checks it again, for loops of Python; here the document has the position.
        declared = cast("LoopDeclaration", result)
        compilation.attempt(path, lambda: refuse_to_act(declared, result.parts()))
    _note_unjudged_goals(compilation, result, path)
    step = result if spec.node is None else compile_node(result, spec.node)
    return with_memory(compilation, spec, step)


def _policies(spec: LoopSpec) -> dict[str, object]:
    """Return what the loop does without progress, with an impossible task and with an undecided judge."""
    policies: dict[str, object] = {}
    if spec.on_stall is not None:
        policies["on_stall"] = OnStall(**spec.on_stall.model_dump())
    if spec.impossible is not None:
        policies["impossible"] = Impossible(**spec.impossible.model_dump())
    if spec.undecided is not None:
        policies["undecided"] = Undecided(**spec.undecided.model_dump())
    return policies


def _note_unjudged_goals(compilation: Compilation, loop: Loop, path: Location) -> None:
    """Note the conditions of success that need an evaluation, if the loop has no evaluator."""
    if loop.evaluate is not None:
        return
    for goal in loop.goals:
        if goal.reads:
            what = f"{tag_of(type(goal))} can never hold: the loop has no evaluate; add evaluate, or remove the condition"
            note = compilation.source.problem((*path, "until"), what, code="goal_without_evaluator")
            compilation.project.notes.append(note)


# Fields that a loop has under the same names in Python.
_SAME = (
    "on_failure",
    "max_retries",
    "retry_delay",
    "keep",
    "min_iterations",
    "max_failures",
    "required",
    "approve",
    "baseline",
    "explore",
)


def _check_min_iterations(compilation: Compilation, spec: LoopSpec, path: Location) -> None:
    """Report a minimum of iterations above the limit of the loop."""
    limit = condition_limit(spec)
    # A limit below 1, or `true`, is a problem already, of which this one would only be a consequence.
    if limit >= 1 and limit is not True and spec.min_iterations > limit:
        what = f"min_iterations: {spec.min_iterations} is above the limit of {limit}"
        compilation.problem((*path, "min_iterations"), f"{what}, which ends the loop first")


def _rejudge(spec: LoopSpec) -> int:
    """Return how often the winner is judged again: the highest `rejudge` of the judges."""
    judges = [item.judge for item in evaluators(spec)]
    return max((judge.rejudge for judge in judges if isinstance(judge, JudgeSpec)), default=0)


def _adapt(compilation: Compilation, spec: LoopSpec, path: Location) -> Step | None:
    at = (*path, "adapt")
    if spec.adapt is None:
        return None
    if isinstance(spec.adapt, str):
        return as_step(getattr(adapters, spec.adapt))
    return _compile_adapt(compilation, spec.adapt, at)


def _compile_adapt(compilation: Compilation, spec: AdaptSpec, at: Location) -> Step | None:
    if spec.python is not None:
        function = compilation.function((*at, "python"), spec.python)
        if function is None or isinstance(function, Step):
            return function
        return compilation.attempt(at, lambda: FunctionStep(function, name="adapt", typed=True))
    if spec.rotate is not None:
        strategies = spec.rotate
        return compilation.attempt((*at, "rotate"), lambda: adapters.rotate(*strategies))
    if spec.merge is not None:
        part = compilation.template((*at, "merge"), spec.merge)
        return adapters.merge(SetValue("merge", part))
    return SetValue("adapt", compilation.template((*at, "set"), spec.set))


def compile_node_evaluator(
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
    weights = {} if node.preset is None else _weights(compilation, node.preset, (*at, "preset"))
    # Checked here and not in the schema, because each end is valid alone.
    low, high = node.scale
    if not low < high:
        compilation.problem(
            (*at, "scale"), f"{node.scale} is not a scale; write two numbers, the lower first"
        )
        return None
    scale = (float(low), float(high))
    options: dict[str, Json] = {} if node.strategies is None else {"strategies": _strategies(node)}
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
    # The agents of a loop inside are not scored by this node.
    asked = (dict(_prompts(execute)) if execute is not None else {}) if re_ask else None
    if asked == {} and execute is not None and not compilation.gaps:
        what = "re_ask repeats a prompt, but no agent of this loop is a prompt"
        compilation.problem((*at, "score_missing"), what)
    return LoopNodeEvaluator(scorer, _lessons(node.lessons), prompts=asked)


def _weights(compilation: Compilation, value: PresetSpec, at: Location) -> Mapping[str, float]:
    """Return the weights of a preset's criteria; empty if it has problems."""
    place = (*at, "weights") if value.weights else at
    result = compilation.attempt(place, lambda: preset(value.level, value.context, value.weights))
    return result or {}


def _prompts(step: Step) -> Iterator[tuple[str, Prompt]]:
    """Iterate over the prompts in a step by name, without those of loops inside it."""
    if isinstance(step, Prompt):
        yield step.name, step
    elif not isinstance(step, Loop | LoopNode):
        for part in step.parts():
            yield from _prompts(part)


def compile_node(loop: Loop, node: NodeSpec) -> LoopNode:
    """Return a loop as a node, whose output is the documented object."""
    return LoopNode(loop, node.threshold, _lessons(node.lessons), node.timeout_score, loop.required)


def _lessons(spec: LessonsSpec) -> LoopNodeLessons:
    """Return the lessons that a loop node keeps of each iteration."""
    patterns = {str(category): tuple(texts) for category, texts in spec.patterns.items()}
    entry = DEFAULT_METADATA if spec.entry is None else spec.entry
    return LoopNodeLessons(patterns, entry, spec.longest, spec.most, spec.persist)


def _strategies(node: NodeSpec) -> tuple[Strategy, ...]:
    value = node.strategies or ()
    return tuple(Strategy(tuple(s.patterns), s.key, tuple(s.agents)) for s in value)


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
