"""Loops of documents: execute, adapt and memory; their conditions: lists, trees and sentences for a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from pydantic_core import PydanticCustomError

from ...conditions import (
    AllOf,
    AnyOf,
    Condition,
    Impossible,
    Judged,
    MaxIterations,
    OnStall,
    Passed,
    from_json,
    has_goal,
    questions_in,
    tag_of,
)
from ...conditions.base import TAGS, instance_of
from ...engine import adapters
from ...engine.loop import Loop, any_of
from ...engine.loop_memory import LoopWithMemory, remembering
from ...engine.loop_options import FAILURES_IN_A_ROW, LoopDeclaration, Undecided, refuse_to_act
from ...engine.step import CompositeStep, FunctionStep, Step, as_step
from ...errors import ConfigurationError, nearest
from ...records import History, Stop
from ...records.codec import Json, flow_text
from ..schema.document import Action, LoopSpec
from ..schema.evaluators import JudgeSpec
from ..schema.extensions import LoopMemorySpec, has_type
from ..schema.fields import duration
from ..schema.traverse import condition_limit, evaluators
from ..steps import SetValue
from ..yaml.reader import Location
from .compilation import Compilation, extension
from .evaluators import compile_evaluators, metric_options
from .prompts import compile_judge
from .tools import compile_workspace

__all__ = [
    "compile_conditions",
    "compile_loop",
    "compile_until",
    "sentences_as_judges",
]


def compile_until(compilation: Compilation, spec: LoopSpec, path: Location) -> Condition | None:
    """Compile the conditions that end a loop after an iteration."""
    key, values = spec.ends
    at = (*path, key)
    if key == "termination" or has_type(values):
        return cast("Condition | None", extension("termination")(compilation, values, at))
    return compile_conditions(compilation, values, at, sentences=True)


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
    if has_type(data):
        return cast("Condition | None", extension("type")(data, path, compilation.problem))
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
    compilation: Compilation, spec: LoopSpec, loop: CompositeStep
) -> CompositeStep | LoopWithMemory:
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
) -> CompositeStep | LoopWithMemory | None:
    """Compile a loop; None if it has problems."""
    assert action.loop is not None
    spec, path = action.loop, (*at, "loop")
    compilation = compilation.with_names(["loop", *(["memory"] if has_memory(spec) else [])])
    if spec.workspace is not None:
        former = getattr(spec.workspace, "refine_from", None)
        compilation = replace(compilation, in_workspace=True, refine_from=former)
    execute = compilation.action(spec.execute, spec.execute.name or "execute", (*path, "execute"))
    if compilation.project.settings.former:
        judges, until = sentences_as_judges(compilation, spec, path)
        evaluate = compile_evaluators(compilation, spec, path, judges)
    else:
        until = compile_until(compilation, spec, path)
        asks = any(True for _ in questions_in(until))
        evaluate = compile_evaluators(compilation, spec, path, gated=asks)
    adapt = _adapt(compilation, spec, path)
    guards = compile_conditions(compilation, spec.guards, (*path, "guards"))
    if spec.max_iterations is not None:
        until = any_of(until, MaxIterations(spec.max_iterations))
    if spec.node is not None:
        evaluate, goal, whole = extension("node")(compilation, spec, path, execute)
        until = any_of(goal, until)
    limit = condition_limit(spec)
    # A limit below 1, or `true`, is a problem already, of which this one would only be a consequence.
    if limit >= 1 and limit is not True and spec.min_iterations > limit:
        what = f"min_iterations: {spec.min_iterations} is above the limit of {limit}"
        compilation.problem((*path, "min_iterations"), f"{what}, which ends the loop first")
    if execute is None:
        return None
    options = {name: getattr(spec, name) for name in _SAME}
    options["hints"] = None if spec.hints is None else spec.hints.model_dump()
    options |= {
        name: make(**({"then": value} if isinstance(value, str) else value.model_dump()))
        for name, make in _POLICIES.items()
        if (value := getattr(spec, name)) is not None
    }
    options |= {"strategies": spec.strategies, "refine_from": _parent_rule(compilation, spec)}
    if (optimise := spec.optimise) is not None:
        from ...search import Optimise  # for the few loops that have one

        made = compilation.attempt((*path, "optimise"), lambda: Optimise(**optimise.model_dump()))
        if made is None:
            return None
        options["optimise"] = made
    if spec.max_failures == "none":
        former = compilation.project.settings.former
        options["max_failures"] = FAILURES_IN_A_ROW if former else None
    options["workspace"] = compile_workspace(compilation, spec.workspace, (*path, "workspace"))
    measured = metric_options(compilation, spec, path)
    if measured is None:
        return None
    options |= measured
    if spec.candidates is not None:
        from .candidates import compile_candidates  # it imports this module

        options["candidates"] = compile_candidates(compilation, spec, (*path, "candidates"))
    if evaluate is None and spec.evaluate is not None:
        options.pop("confirm", None)  # its evaluator has problems, which are reported
    # With an objective, the loop looks for the best value until a limit ends it.
    if evaluate is not None and not (has_goal(until) or has_goal(guards) or spec.optimises):
        # `Loop` adds it too, but with a warning, which `lints` reports with its place instead.
        until = any_of(until, Passed())
    stages = (execute, evaluate, adapt, until, guards, name)
    # The winner is judged again as often as the judge asks that asks most often.
    again = [item.judge.rejudge for item in evaluators(spec) if isinstance(item.judge, JudgeSpec)]
    options["rejudge"] = max(again, default=0)
    result = compilation.attempt(path, lambda: Loop(*stages, **options))
    if result is None:
        return None
    if spec.explore and not compilation.in_workspace:
        # The run checks it again, for loops of Python; here the document has the position.
        declared = cast("LoopDeclaration", result)
        compilation.attempt(path, lambda: refuse_to_act(declared, result.parts()))
    _note_unjudged_goals(compilation, result, path)
    return with_memory(compilation, spec, result if spec.node is None else whole(result))


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
    "strategy_order",
)


# What a loop does without progress, with an impossible task and with an undecided judge.
_POLICIES: Mapping[str, Callable[..., object]] = {
    "on_stall": OnStall, "impossible": Impossible, "undecided": Undecided,
}  # fmt: skip


def _parent_rule(compilation: Compilation, spec: LoopSpec) -> Json:
    """Return the rule for the parent; of a recorded document, that of the workspace around."""
    rule = spec.refine_from
    if rule is None:
        former = compilation.refine_from
        return {"accepted": "best", "last": None, None: None}.get(former, former)
    return rule if isinstance(rule, str) else rule.model_dump()


def _adapt(compilation: Compilation, spec: LoopSpec, path: Location) -> Step | None:
    adapt, at = spec.adapt, (*path, "adapt")
    if adapt is None:
        return None
    if isinstance(adapt, str):
        return as_step(getattr(adapters, adapt))
    if adapt.python is not None:
        function = compilation.function((*at, "python"), adapt.python)
        if function is None or isinstance(function, Step):
            return function
        return compilation.attempt(at, lambda: FunctionStep(function, name="adapt", typed=True))
    if adapt.rotate is not None:
        strategies = adapt.rotate
        return compilation.attempt((*at, "rotate"), lambda: adapters.rotate(*strategies))
    if adapt.merge is not None:
        part = compilation.template((*at, "merge"), adapt.merge)
        return adapters.merge(SetValue("merge", part))
    return SetValue("adapt", compilation.template((*at, "set"), adapt.set))
