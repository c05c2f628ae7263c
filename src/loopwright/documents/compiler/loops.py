"""Loops of documents: execute, adapt, memory, the scoring of loop nodes, and the conditions that end them.

Conditions are lists, trees, sentences for a judge, and the JSON of a loop controller. A loop controller writes
`{"type": "confidence", "threshold": 0.85}`. Its types: `confidence` (threshold 0 to 1, min_iterations),
`max_iterations` (limit), `timeout` (duration_ms), `no_improvement` (patience), `combined` (operator AND or OR,
conditions). Limits act outside an AND too, and `min_iterations` counts completed iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from pydantic_core import PydanticCustomError

from ..._regex import compile_pattern
from ...conditions import (
    AllOf,
    AnyOf,
    Condition,
    Judged,
    MaxIterations,
    NoImprovement,
    Passed,
    ScoreAtLeast,
    Timeout,
    from_json,
    has_goal,
    questions_in,
    tag_of,
)
from ...conditions.base import TAGS, instance_of
from ...dialects.orka.loop_node import (
    DEFAULT_METADATA,
    LoopNode,
    LoopNodeEvaluator,
    LoopNodeLessons,
    Scorer,
    Strategy,
)
from ...dialects.orka.presets import preset
from ...dialects.orka.templates import node_template
from ...engine import adapters
from ...engine.loop import FAILURES_IN_A_ROW, Loop, any_of
from ...engine.loop_memory import LoopWithMemory, remembering
from ...engine.loop_options import Impossible, LoopDeclaration, OnStall, Undecided, refuse_to_act
from ...engine.step import FunctionStep, Step, as_step
from ...errors import ConfigurationError, nearest
from ...prompts.prompt import Prompt
from ...records import History, Stop
from ...records.codec import Json, flow_text
from ..schema.document import Action, LoopSpec
from ..schema.evaluators import AdaptSpec, JudgeSpec
from ..schema.extensions import LessonsSpec, LoopMemorySpec, NodeSpec, PresetSpec
from ..schema.fields import duration
from ..schema.traverse import condition_limit, evaluators
from ..steps import SetValue
from ..yaml.reader import Location
from .compilation import Compilation
from .evaluators import compile_evaluators, metric_options
from .prompts import compile_judge
from .tools import compile_workspace

__all__ = [
    "compile_conditions",
    "compile_loop",
    "compile_until",
    "controller_condition",
    "sentences_as_judges",
]


def compile_until(compilation: Compilation, spec: LoopSpec, path: Location) -> Condition | None:
    """Compile the conditions that end a loop after an iteration."""
    key, values = spec.ends
    at = (*path, key)
    if key == "termination":
        condition = controller_condition(values, at, compilation.problem)
    else:
        condition = compile_conditions(compilation, values, at, sentences=True)
    controls = key == "termination" or is_controller_json(values)
    # A loop controller ends when its evaluation passes, whatever its conditions say.
    if controls and has_goal(condition) and not compilation.project.settings.former:
        return any_of(condition, Passed())
    return condition


def compile_conditions(
    compilation: Compilation, data: Json, path: Location, *, sentences: bool = False
) -> Condition | None:
    """Compile a list or tree of conditions; None if it is empty or has problems.

    Args:
        compilation: the document.
        data: the value in the document.
        path: its place.
        sentences: whether a text with a space is a sentence for a judge.
    """
    if data is None:
        return None
    if isinstance(data, str) and data not in TAGS and (sentences or " " in data.strip()):
        return _sentence(compilation, {"sentence": data}, path, allowed=sentences)
    if isinstance(data, list):
        return _combine(compilation, AnyOf, data, path, sentences=sentences)
    if is_controller_json(data):
        return controller_condition(data, path, compilation.problem)
    if isinstance(data, Mapping) and "python" in data:
        return _python_condition(compilation, data, path)
    if isinstance(data, Mapping):
        tags = list(data)
        if len(tags) > 1:
            # Several keys in one mapping mean "any of", like the items of a list.
            items = [{tag: data[tag]} for tag in tags]
            return _combine(compilation, AnyOf, items, path, tags, sentences=sentences)
        if tags and tags[0] in ("any_of", "all_of"):
            kind = AnyOf if tags[0] == "any_of" else AllOf
            inner = data[tags[0]]
            items = inner if isinstance(inner, list) else [inner]
            return _combine(compilation, kind, items, (*path, tags[0]), sentences=sentences)
        if tags == ["judged"]:
            value = data["judged"]
            fields = value if isinstance(value, Mapping) else {"sentence": value}
            return _sentence(compilation, fields, (*path, "judged"), allowed=sentences)
    try:
        return from_json(_with_seconds(data))
    except ConfigurationError as error:
        tag = next(iter(data), None) if isinstance(data, Mapping) else None
        at = path if tag is None else (*path, tag)
        compilation.problem(at, str(error), key=tag is not None, own=True)
        return None


def _sentence(
    compilation: Compilation, fields: Mapping[str, Json], path: Location, *, allowed: bool
) -> Condition | None:
    """Compile a sentence for a judge, with the model and the settings of the document."""
    text = fields.get("sentence")
    # A sentence has a space; a single unknown word is a misspelt condition.
    if isinstance(text, str) and " " not in text.strip() and path[-1] != "judged":
        known = nearest(text, TAGS)
        message = f"{text!r} is neither a condition nor a sentence{known}"
        compilation.problem(path, message, own=True)
        return None
    if not allowed:
        compilation.problem(
            path,
            "a sentence is asked after an iteration, and guards are checked before each step; move it to until",
        )
        return None
    condition: Condition | None = compilation.attempt(
        path, lambda: from_json({"judged": dict(fields)})
    )
    if not isinstance(condition, Judged):
        return condition
    spec = JudgeSpec(criterion=condition.sentence, model=condition.model or None)
    judge = compile_judge(compilation, spec, path)
    return None if judge is None else replace(condition, judge=judge)


def sentences_as_judges(
    compilation: Compilation, spec: LoopSpec, path: Location
) -> tuple[list[JudgeSpec], Condition | None]:
    """Return the judges and the condition of `until` as earlier versions compiled them, for their fingerprints."""
    judges: list[JudgeSpec] = []

    def walk(data: Json) -> Json:
        if isinstance(data, str) and data not in TAGS:
            judges.append(JudgeSpec(criterion=data))
            return "passed"
        if isinstance(data, list):
            return [walk(item) for item in data]
        if isinstance(data, Mapping) and len(data) == 1:
            tag, value = next(iter(data.items()))
            return {tag: walk(value)} if tag in ("any_of", "all_of") else data
        return data

    walked = spec.model_copy(update={"until": walk(spec.until)})
    return judges, compile_until(compilation, walked, path)


def _python_condition(
    compilation: Compilation, data: Mapping[str, Json], path: Location
) -> Condition | None:
    """Compile a condition of the user: a Python class and its arguments."""
    reference, at = data["python"], (*path, "python")
    if not isinstance(reference, str):
        compilation.problem(
            at,
            f"{flow_text(reference)} is not a class reference; write package.module:Class",
            key=True,
        )
        return None
    kind = compilation.function(at, reference)
    if kind is None:
        return None
    if not compilation.project.execute:
        return NotImported(reference, dict(data))
    values = {str(name): value for name, value in data.items() if name != "python"}

    def make() -> Condition:
        return instance_of(reference, kind, values)

    result: Condition | None = compilation.attempt(at, make)
    return result


def _with_seconds(data: Json) -> Json:
    """Return a condition with a timeout such as `30s` in seconds."""
    # Conditions take seconds only; units are a convenience of documents.
    value = data.get("timeout") if isinstance(data, Mapping) else None
    if isinstance(value, Mapping) and isinstance(value.get("seconds"), str):
        value = value["seconds"]
    if not isinstance(value, str):
        return data
    try:
        return {"timeout": duration(value)}
    except PydanticCustomError as error:
        raise ConfigurationError(f"timeout: {error.message()}") from None


def _combine(
    compilation: Compilation,
    kind: type[AnyOf | AllOf],
    items: list[Json],
    path: Location,
    keys: list[str] | None = None,
    *,
    sentences: bool,
) -> Condition | None:
    if not items:
        compilation.problem(
            path, f"{tag_of(kind)}: the list of conditions is empty; add at least one"
        )
        return None
    places = [path] * len(items) if keys else [(*path, i) for i in range(len(items))]
    result = [
        compile_conditions(compilation, item, at, sentences=sentences)
        for item, at in zip(items, places, strict=True)
    ]
    combined = tuple(c for c in result if c is not None)
    return (combined[0] if len(combined) == 1 else kind(combined)) if combined else None


Report = Callable[[Location, str], None]
# type: its fields, and the required ones of these
_FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "confidence": (("threshold", "min_iterations"), ("threshold",)),
    "max_iterations": (("limit",), ("limit",)),
    "timeout": (("duration_ms",), ("duration_ms",)),
    "no_improvement": (("patience", "min_delta"), ("patience",)),
    "combined": (("operator", "conditions"), ("operator", "conditions")),
}


def is_controller_json(data: Json) -> bool:
    """Return whether a value has the form of a loop controller's condition."""
    return isinstance(data, Mapping) and "type" in data


def controller_condition(data: Json, at: Location, report: Report) -> Condition | None:
    """Return the condition of a loop controller's JSON; None if `report` received problems."""
    if not isinstance(data, Mapping):
        report(at, f"{flow_text(data)} is not a condition; write an object with a type")
        return None
    kind = data.get("type")
    if not isinstance(kind, str) or kind not in _FIELDS:
        report(
            (*at, "type"),
            f"unknown type {flow_text(kind)}{nearest(str(kind), _FIELDS) or _all_types()}",
        )
        return None
    names, needed = _FIELDS[kind]
    wrong = [name for name in data if name not in (*names, "type")]
    for name in wrong:
        report((*at, str(name)), f"{kind}: unknown key {str(name)!r}{nearest(str(name), names)}")
    missing = [name for name in needed if name not in data]
    for name in missing:
        report(at, f"{kind}: needs {name}")
    if wrong or missing:
        return None
    if kind == "combined":
        return _combined(data, at, report)
    try:
        return _controller_leaf(kind, data)
    except ConfigurationError as error:
        report(at, str(error))
        return None


def _controller_leaf(kind: str, data: Mapping[str, Json]) -> Condition:
    if kind == "confidence":
        return ScoreAtLeast(data["threshold"], data.get("min_iterations", 1))
    if kind == "max_iterations":
        return MaxIterations(data["limit"])
    if kind == "no_improvement":
        return NoImprovement(data["patience"], data.get("min_delta", 0.0))
    value = data["duration_ms"]
    # bool is a subclass of int: `duration_ms: true` would be one millisecond.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"timeout: duration_ms: {flow_text(value)} is not a number of milliseconds"
        )
    return Timeout(value / 1000)


def _combined(data: Mapping[str, Json], at: Location, report: Report) -> Condition | None:
    operator, value = data["operator"], data["conditions"]
    if operator not in ("AND", "OR"):
        report(
            (*at, "operator"),
            f"{flow_text(operator)} is not AND or OR{nearest(str(operator).upper(), ('AND', 'OR'))}",
        )
        return None
    if not isinstance(value, list) or not value:
        report((*at, "conditions"), "the list of conditions is empty; add at least one")
        return None
    result = [
        controller_condition(item, (*at, "conditions", i), report) for i, item in enumerate(value)
    ]
    combined = tuple(condition for condition in result if condition is not None)
    # With a part left out, an AND would hold too early.
    if len(combined) < len(result):
        return None
    if len(combined) == 1:
        return combined[0]
    return AnyOf(combined) if operator == "OR" else AllOf(combined)


def _all_types() -> str:
    return f"; the types are {', '.join(_FIELDS)}"


@dataclass(frozen=True)
class NotImported(Condition):
    """A condition of the user in a document that is only checked: its class is not imported."""

    reference: str
    written: dict[str, Json] = field(hash=False)

    def check(self, history: History) -> Stop | None:
        """Raise an error, because the class is not imported in a check or a dry run.

        Raises:
            ConfigurationError: Always.
        """
        raise ConfigurationError(
            f"{self.reference} is a Python condition, and a dry run of a document imports no Python. "
            "Use a condition of Loopwright, or run the step with loopwright.testing.dry_run."
        )

    def __str__(self) -> str:
        return self.reference

    def to_json(self) -> Json:
        """Return the condition in the form of the document."""
        return dict(self.written)


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
