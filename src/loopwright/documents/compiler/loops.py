"""Loops of native documents: stages, evaluators and conditions.

LoopResults of native documents that are given what earlier runs of them came to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import PydanticCustomError

from ...conditions import (
    Condition,
    MaxIterations,
    Passed,
    ScoreAtLeast,
    from_json,
    has_goal,
    tag_of,
)
from ...conditions.base import TAGS, AllOf, AnyOf, made_of
from ...engine import adapters
from ...engine.loop import Loop, any_of
from ...engine.loop_memory import LoopWithMemory, remembering
from ...engine.step import FunctionStep, Step, as_step
from ...errors import ConfigurationError, nearest
from ...evaluators.check import check
from ...evaluators.checklist import checklist
from ...evaluators.gates import gates
from ...evaluators.score import score
from ...evaluators.test_report import share_passing
from ..schema.document import Action, EvaluateSpec, LoopSpec, ScoreSpec
from ..schema.evaluators import AdaptSpec, CheckSpec, JudgeSpec
from ..schema.fields import duration
from ..schema.loop_nodes import LoopMemorySpec
from ..schema.traverse import condition_limit, evaluators
from ..steps.loop_node import LoopNode
from ..steps.steps import SetValue
from .compilation import Compilation, Path_
from .conditions import NotImported
from .controller_json import conditions_at, is_controller_json
from .evaluators import compile_confidence
from .loop_nodes import as_node, scored
from .prompts import compile_judge
from .tools import command_value

__all__ = ["compile_evaluators", "compile_loop", "remembers", "with_memory"]


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
    judges, until = _until(compilation, spec, path)
    evaluate = compile_evaluators(compilation, spec.evaluate, path, judges)
    adapt = _adapt(compilation, spec, path)
    guards = conditions(compilation, spec.guards, (*path, "guards"))
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


def _until(
    compilation: Compilation, spec: LoopSpec, path: Path_
) -> tuple[list[JudgeSpec], Condition | None]:
    """Return the judges that sentences ask for, and the condition."""
    key, given = spec.ends
    at = (*path, key)
    sentences: list[JudgeSpec] = []

    def walk(data: Any) -> Any:
        if isinstance(data, str) and data not in TAGS:
            if " " not in data.strip():
                raise ConfigurationError(
                    f"{data!r} is neither a condition nor a sentence{nearest(data, TAGS)}"
                )
            sentences.append(JudgeSpec(criterion=data))
            return "passed"
        if isinstance(data, list):
            return [walk(item) for item in data]
        if isinstance(data, Mapping) and len(data) == 1:
            tag, value = next(iter(data.items()))
            return {tag: walk(value)} if tag in ("any_of", "all_of") else data
        return data

    if given is None:
        return [], None
    if key == "termination":
        return [], conditions_at(given, at, compilation.problem)
    try:
        data = walk(given)
    except ConfigurationError as error:
        compilation.problem(at, str(error))
        return [], None
    return sentences, conditions(compilation, data, at)


def conditions(compilation: Compilation, data: Any, path: Path_) -> Condition | None:
    """Compile a list or tree of conditions, reporting each wrong one at its own place."""
    if data is None:
        return None
    if isinstance(data, list):
        return _joined(compilation, AnyOf, data, path)
    if is_controller_json(data):
        return conditions_at(data, path, compilation.problem)
    if isinstance(data, Mapping) and "python" in data:
        return _own(compilation, data, path)
    if isinstance(data, Mapping):
        tags = list(data)
        if len(tags) > 1:
            return _joined(compilation, AnyOf, [{tag: data[tag]} for tag in tags], path, tags)
        if tags and tags[0] in ("any_of", "all_of"):
            kind = AnyOf if tags[0] == "any_of" else AllOf
            inner = data[tags[0]]
            items = inner if isinstance(inner, list) else [inner]
            return _joined(compilation, kind, items, (*path, tags[0]))
    try:
        return from_json(_seconds(data))
    except ConfigurationError as error:
        tag = next(iter(data), None) if isinstance(data, Mapping) else None
        compilation.problem(path if tag is None else (*path, tag), str(error), key=tag is not None)
        return None


def _own(compilation: Compilation, data: Mapping[str, Any], path: Path_) -> Condition | None:
    """Compile a condition of the document's author: a class of Python and its arguments."""
    reference, at = data["python"], (*path, "python")
    if not isinstance(reference, str):
        compilation.problem(
            at, f"{reference!r} names no class; write package.module:Class", key=True
        )
        return None
    kind = compilation.function(at, reference)
    if kind is None:
        return None
    if not compilation.project.execute:
        return NotImported(reference, dict(data))
    given = {str(name): value for name, value in data.items() if name != "python"}

    def make() -> Condition:
        return made_of(reference, kind, given)

    made: Condition | None = compilation.attempt(at, make)
    return made


def _seconds(data: Any) -> Any:
    """Return a timeout that is written like `30s` in seconds, as every other duration of a document is."""
    value = data.get("timeout") if isinstance(data, Mapping) else None
    if isinstance(value, Mapping) and isinstance(value.get("seconds"), str):
        value = value["seconds"]
    if not isinstance(value, str):
        return data
    try:
        return {"timeout": duration(value)}
    except PydanticCustomError as error:
        raise ConfigurationError(f"timeout: {error.message()}") from None


def _joined(
    compilation: Compilation,
    kind: Any,
    items: list[Any],
    path: Path_,
    keys: list[str] | None = None,
) -> Condition | None:
    if not items:
        compilation.problem(
            path, f"{tag_of(kind)}: the list of conditions is empty; name at least one"
        )
        return None
    places = [path] * len(items) if keys else [(*path, i) for i in range(len(items))]
    found = [conditions(compilation, item, at) for item, at in zip(items, places, strict=True)]
    whole = tuple(c for c in found if c is not None)
    return (whole[0] if len(whole) == 1 else kind(whole)) if whole else None


def compile_evaluators(
    compilation: Compilation,
    evaluate: EvaluateSpec | list[EvaluateSpec] | None,
    path: Path_,
    judges: Sequence[JudgeSpec] = (),
) -> Any:
    """Compile evaluators in the order in which they are asked: the deterministic ones first."""
    given = evaluate if isinstance(evaluate, list) else [evaluate] if evaluate else []
    firm: list[Step | None] = []
    soft: list[Step | None] = []
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


def _firm(compilation: Compilation, spec: EvaluateSpec, path: Path_) -> list[Step | None]:
    made: list[Step | None] = []
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


def _rejudge(spec: LoopSpec) -> int:
    """Return how often the winner is judged again: as often as the judge that wants most."""
    judges = [item.judge for item in evaluators(spec)]
    return max((judge.rejudge for judge in judges if isinstance(judge, JudgeSpec)), default=0)


def _soft(compilation: Compilation, spec: EvaluateSpec, path: Path_) -> list[Step | None]:
    made: list[Step | None] = []
    if spec.judge is not None:
        judge = JudgeSpec(criterion=spec.judge) if isinstance(spec.judge, str) else spec.judge
        made.append(compile_judge(compilation, judge, (*path, "judge")))
    if spec.confidence is not None:
        made.append(compile_confidence(compilation, spec.confidence, (*path, "confidence")))
    return made


def _check(compilation: Compilation, spec: CheckSpec, path: Path_) -> Step | None:
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


def _checklist(compilation: Compilation, specs: list[CheckSpec], path: Path_) -> Step | None:
    items: dict[str, Step] = {}
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


def _score(compilation: Compilation, spec: ScoreSpec, path: Path_) -> Step | None:
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


def _adapt(compilation: Compilation, spec: LoopSpec, path: Path_) -> Step | None:
    at = (*path, "adapt")
    if spec.adapt is None:
        return None
    if isinstance(spec.adapt, str):
        return as_step(getattr(adapters, spec.adapt))
    return _made_adapt(compilation, spec.adapt, at)


def _made_adapt(compilation: Compilation, spec: AdaptSpec, at: Path_) -> Step | None:
    if spec.python is not None:
        found = compilation.function((*at, "python"), spec.python)
        if found is None or isinstance(found, Step):
            return found
        return compilation.attempt(at, lambda: FunctionStep(found, name="adapt"))
    if spec.rotate is not None:
        strategies = spec.rotate
        return compilation.attempt((*at, "rotate"), lambda: adapters.rotate(*strategies))
    if spec.merge is not None:
        part = compilation.filled((*at, "merge"), spec.merge)
        return adapters.merge(SetValue("merge", part))
    return SetValue("adapt", compilation.filled((*at, "set"), spec.set))
