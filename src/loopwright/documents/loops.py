"""Loops of native documents: stages, evaluators and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from .. import adapters
from ..conditions import Condition, MaxIterations, ScoreAtLeast, from_json, tag_of
from ..conditions.base import TAGS, AllOf, AnyOf
from ..errors import ConfigurationError, nearest
from ..evaluators.check import check
from ..evaluators.checklist import checklist
from ..evaluators.gates import gates
from ..evaluators.passing import share_passing
from ..evaluators.score import score
from ..loop import Loop, any_of
from ..nodes import LoopNode
from ..remembering import Remembering
from ..step import FunctionStep, as_step
from .commands import command_value
from .controller_json import conditions_at, is_controller_json
from .fields import duration
from .learned import remembers, with_memory
from .native import EvaluateSpec, LoopSpec, ScoreSpec
from .native_judging import AdaptSpec, CheckSpec, JudgeSpec
from .scored import as_node, scored
from .steps import SetStep
from .walking import condition_limit, evaluators

if TYPE_CHECKING:
    from .compiling import Compiler, Path_

__all__ = ["compile_evaluators", "compile_loop"]


def compile_loop(
    compiler: Compiler, spec: LoopSpec, name: str, path: Path_
) -> Loop | LoopNode | Remembering | None:
    """Compile a loop; None if problems were found."""
    compiler = compiler.knowing(["loop", *(["memory"] if remembers(spec) else [])])
    execute = compiler.action(spec.execute, "execute", (*path, "execute"))
    judges, until = _until(compiler, spec, path)
    evaluate = compile_evaluators(compiler, spec.evaluate, path, judges)
    adapt = _adapt(compiler, spec, path)
    guards = conditions(compiler, spec.guards, (*path, "guards"))
    if spec.max_iterations is not None:
        until = any_of(until, MaxIterations(spec.max_iterations))
    if spec.node is not None:
        evaluate = scored(compiler, spec, spec.node, path, execute)
        until = any_of(ScoreAtLeast(spec.node.threshold), until)
    _reachable(compiler, spec, path)
    if execute is None:
        return None
    options = {name: getattr(spec, name) for name in _SAME}
    stages = (execute, evaluate, adapt, until, guards, name)
    made = compiler.attempt(path, lambda: Loop(*stages, rejudge=_rejudge(spec), **options))
    if made is None:
        return None
    whole = made if spec.node is None else as_node(made, spec.node)
    return with_memory(compiler, spec, whole)


# What a loop of Python calls as a document does.
_SAME = (
    "on_failure",
    "max_retries",
    "retry_delay",
    "keep",
    "min_iterations",
    "required",
    "approve",
)


def _reachable(compiler: Compiler, spec: LoopSpec, path: Path_) -> None:
    """Report a least number of iterations that the loop's own limit forbids."""
    limit = condition_limit(spec)
    if spec.min_iterations > limit:
        what = f"min_iterations: {spec.min_iterations} is above the limit of {limit}"
        compiler.problem((*path, "min_iterations"), f"{what}, which ends the loop first")


def _until(
    compiler: Compiler, spec: LoopSpec, path: Path_
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
        return [], conditions_at(given, at, compiler.problem)
    try:
        data = walk(given)
    except ConfigurationError as error:
        compiler.problem(at, str(error))
        return [], None
    return sentences, conditions(compiler, data, at)


def conditions(compiler: Compiler, data: Any, path: Path_) -> Condition | None:
    """Compile a list or tree of conditions, reporting each wrong one at its own place."""
    if data is None:
        return None
    if isinstance(data, list):
        return _joined(compiler, AnyOf, data, path)
    if is_controller_json(data):
        return conditions_at(data, path, compiler.problem)
    if isinstance(data, Mapping):
        tags = list(data)
        if len(tags) > 1:
            return _joined(compiler, AnyOf, [{tag: data[tag]} for tag in tags], path, tags)
        if tags and tags[0] in ("any_of", "all_of"):
            kind = AnyOf if tags[0] == "any_of" else AllOf
            inner = data[tags[0]]
            items = inner if isinstance(inner, list) else [inner]
            return _joined(compiler, kind, items, (*path, tags[0]))
    try:
        return from_json(_seconds(data))
    except ConfigurationError as error:
        tag = next(iter(data), None) if isinstance(data, Mapping) else None
        compiler.problem(path if tag is None else (*path, tag), str(error), key=tag is not None)
        return None


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
    compiler: Compiler, kind: Any, items: list[Any], path: Path_, keys: list[str] | None = None
) -> Condition | None:
    if not items:
        compiler.problem(
            path, f"{tag_of(kind)}: the list of conditions is empty; name at least one"
        )
        return None
    places = [path] * len(items) if keys else [(*path, i) for i in range(len(items))]
    found = [conditions(compiler, item, at) for item, at in zip(items, places, strict=True)]
    whole = tuple(c for c in found if c is not None)
    return (whole[0] if len(whole) == 1 else kind(whole)) if whole else None


def compile_evaluators(
    compiler: Compiler,
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
        firm += _firm(compiler, item, at)
        soft += _soft(compiler, item, at)
    for judge in judges:
        from .prompting import compile_judge

        soft.append(compile_judge(compiler, judge, (*path, "until")))
    found = [step for step in (*firm, *soft) if step is not None]
    if not found:
        return None
    return found[0] if len(found) == 1 else gates(*found)


def _firm(compiler: Compiler, spec: EvaluateSpec, path: Path_) -> list[Any]:
    made = []
    if spec.check is not None:
        made.append(_check(compiler, spec.check, (*path, "check")))
    if spec.checklist is not None:
        made.append(_checklist(compiler, spec.checklist, (*path, "checklist")))
    if spec.score is not None:
        made.append(_score(compiler, spec.score, (*path, "score")))
    if spec.python is not None:
        found = compiler.function((*path, "python"), spec.python)
        if found is not None:
            made.append(compiler.attempt(path, lambda: as_step(found, name="evaluate")))
    return made


def _rejudge(spec: LoopSpec) -> int:
    """Return how often the winner is judged again: as often as the judge that wants most."""
    judges = [item.judge for item in evaluators(spec)]
    return max((judge.rejudge for judge in judges if isinstance(judge, JudgeSpec)), default=0)


def _soft(compiler: Compiler, spec: EvaluateSpec, path: Path_) -> list[Any]:
    made: list[Any] = []
    if spec.judge is not None:
        from .prompting import compile_judge

        judge = JudgeSpec(criterion=spec.judge) if isinstance(spec.judge, str) else spec.judge
        made.append(compile_judge(compiler, judge, (*path, "judge")))
    if spec.confidence is not None:
        from .rating import compile_confidence

        made.append(compile_confidence(compiler, spec.confidence, (*path, "confidence")))
    return made


def _check(compiler: Compiler, spec: CheckSpec, path: Path_) -> Any:
    parts = []
    for kind in spec.tests:
        value = getattr(spec, kind)
        at = (*path, kind.rstrip("_"))
        options: dict[str, Any] = {}
        if kind == "python":
            value = compiler.function(at, value)
            if value is None:
                continue
            made = compiler.attempt(at, partial(check, value, name=spec.name or ""))
        else:
            if kind == "command":
                value = _constant(compiler, value, at)
                cwd = compiler.project.inside(
                    compiler.folder, spec.cwd or ".", compiler, (*path, "cwd")
                )
                env = {
                    k: command_value(compiler, (*path, "env", k), v) for k, v in spec.env.items()
                }
                options = {"cwd": cwd, "env": env, "timeout": spec.timeout}
            keyword = {kind.rstrip("_"): value}
            made = compiler.attempt(at, partial(check, name=spec.name or "", **keyword, **options))
        parts.append(made)
    found = [part for part in parts if part is not None]
    return None if not found else found[0] if len(found) == 1 else gates(*found)


def _constant(compiler: Compiler, command: Any, path: Path_) -> Any:
    for text in [command] if isinstance(command, str) else command:
        if "{{" in text or "{%" in text:
            compiler.problem(
                path,
                "a template inside command text would let a value become a command; "
                "pass values by env or stdin",
            )
    return command


def _checklist(compiler: Compiler, specs: list[CheckSpec], path: Path_) -> Any:
    items: dict[str, Any] = {}
    weights: dict[str, float] = {}
    for i, spec in enumerate(specs):
        name = spec.name or ", ".join(f"{t.rstrip('_')} {getattr(spec, t)}" for t in spec.tests)
        if name in items:
            compiler.problem((*path, i), f"the checklist has two items named {name!r}")
            continue
        made = _check(compiler, spec, (*path, i))
        if made is not None:
            items[name], weights[name] = made, spec.weight
    return checklist(items, weights=weights) if items else None


def _score(compiler: Compiler, spec: ScoreSpec, path: Path_) -> Any:
    if spec.tests is not None:
        command = _constant(compiler, spec.tests, (*path, "tests"))
        cwd = compiler.project.inside(compiler.folder, spec.cwd or ".", compiler, (*path, "cwd"))
        return compiler.attempt(path, lambda: share_passing(command, cwd=cwd, timeout=spec.timeout))
    of = None
    if spec.of is not None:
        of = compiler.action(spec.of, "of", (*path, "of"))
    low, high = spec.scale
    return compiler.attempt(
        path,
        lambda: score(spec.label, (low, high), pattern=spec.pattern or "", of=of),
    )


def _adapt(compiler: Compiler, spec: LoopSpec, path: Path_) -> Any:
    at = (*path, "adapt")
    if spec.adapt is None:
        return None
    if isinstance(spec.adapt, str):
        return getattr(adapters, spec.adapt)
    return _made_adapt(compiler, spec.adapt, at)


def _made_adapt(compiler: Compiler, spec: AdaptSpec, at: Path_) -> Any:
    if spec.python is not None:
        found = compiler.function((*at, "python"), spec.python)
        if found is None or hasattr(found, "effect"):
            return found
        return compiler.attempt(at, lambda: FunctionStep(found, name="adapt"))
    if spec.rotate is not None:
        strategies = spec.rotate
        return compiler.attempt((*at, "rotate"), lambda: adapters.rotate(*strategies))
    if spec.merge is not None:
        part = compiler.filled((*at, "merge"), spec.merge)
        return adapters.merge(SetStep("merge", part))
    return SetStep("adapt", compiler.filled((*at, "set"), spec.set))
