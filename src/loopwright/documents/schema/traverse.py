"""Traversals of a native document: its parts, commands, functions, models, variables and limits."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from ...conditions import CEILING
from ...engine.loop_options import DEFAULT_LIMIT
from ...records.codec import Json
from ..yaml.reader import Location
from .document import (
    Action,
    CandidatesSpec,
    CaseFields,
    Document,
    EvaluateSpec,
    GepaSpec,
    LoopSpec,
    PhasedSpec,
    StepSpec,
    WorkspaceSpec,
)
from .evaluators import JudgeSpec, MetricSpec
from .extensions import has_type
from .fields import SandboxSpec, ServerSpec, StrictModel, ToolSpec
from .models import CodingAgentSpec

__all__ = [
    "actions_of",
    "commands_in",
    "condition_limit",
    "conditions_in",
    "evaluators",
    "functions_in",
    "given_needs",
    "has_groups",
    "holds_loops",
    "inner_actions",
    "is_loop",
    "models_in",
    "needs_of",
    "parts",
    "phase_limits",
    "phases_of",
    "placed_evaluators",
    "running_order",
    "several_of",
    "variables_in",
    "variables_of",
]


def parts(value: object) -> Iterator[StrictModel]:
    """Iterate over a part of a document and all parts below it, of every kind."""
    # A stack instead of recursion: a document of 1 MiB has up to 100,000 values.
    todo: list[Json] = [value]
    while todo:
        part = todo.pop()
        kind = type(part)
        if kind is list:
            below = part
        elif kind is dict:
            below = list(part.values())
        elif isinstance(part, StrictModel):
            yield part
            fields = part.__dict__
            # `model_fields_set` has no order, and the order decides digests and displays.
            values = sorted(part.model_fields_set, key=_places(type(part)).__getitem__)
            below = [fields[name] for name in values]
        else:
            continue
        todo += [item for item in reversed(below) if type(item) not in _PLAIN]


_PLAIN = frozenset({str, int, float, bool, type(None)})


@functools.cache
def _places(kind: type[StrictModel]) -> dict[str, int]:
    """Return the position of each field of a model."""
    return {name: number for number, name in enumerate(kind.model_fields)}


def commands_in(document: Document) -> Iterator[tuple[list[str] | str, str]]:
    """Iterate over the commands of a document, each with its working folder."""
    for part in parts(document):
        yield from _commands_of(part)


def _commands_of(part: StrictModel) -> Iterator[tuple[list[str] | str, str]]:
    """Iterate over the commands of one part, without those of the parts below it."""
    for name in ("shell", "command", "tests", "setup", "reset"):
        command = getattr(part, name) if name in part.model_fields_set else None
        # A test command with settings is a part too, and has the key `command`.
        if command and isinstance(command, str | list):
            place = part.path if isinstance(part, WorkspaceSpec) else getattr(part, "cwd", None)
            yield command, place or "."
    if isinstance(part, MetricSpec):
        for gate in part.gates:
            yield gate, part.cwd or "."
    if isinstance(part, ToolSpec):
        for words in part.commands or ():
            yield words, part.cwd or "."
    if isinstance(part, SandboxSpec) and part.wrap:
        yield [*part.wrap, "…"], "."
    if isinstance(part, CodingAgentSpec):
        permissions = f"--permissions={part.permissions}"
        waits = ["--waits-for-commands"] if getattr(part.waits, "commands", False) else []
        yield ["agent", part.cli, permissions, *waits, *part.args], "."


def functions_in(document: Document) -> Iterator[str]:
    """Iterate over the functions of Python that a document names."""
    for part in parts(document):
        if reference := part.__dict__.get("python"):
            yield reference
        # Capabilities are Python classes too, which a run imports.
        if isinstance(part, PhasedSpec):
            yield from part.capabilities
        for name in ("until", "guards"):
            for tag, value in conditions_in(getattr(part, name, None)):
                if tag == "python" and isinstance(value["python"], str):
                    yield value["python"]


def variables_of(part: Json) -> Iterator[str]:
    """Iterate over the names of environment variables that one part of a document passes on."""
    value = part.__dict__
    yield from filter(None, (value.get("api_key_env"), value.get("token_env")))
    yield from value.get("pass_env") or ()
    if isinstance(part, ServerSpec):
        from ...tools.mcp import VARIABLE

        for text in (*part.env.values(), *part.headers.values()):
            yield from VARIABLE.findall(text)


def variables_in(document: Document) -> Iterator[str]:
    """Iterate over the names of environment variables that a document passes on."""
    for part in parts(document):
        yield from variables_of(part)


def inner_actions(action: Action) -> Iterator[Action]:
    """Iterate over the actions directly inside one."""
    for group in (action.steps, action.parallel, action.fallback):
        yield from group or ()
    if action.each is not None:
        yield action.each.execute
    if action.loop is not None:
        yield action.loop.execute
        if (several := several_of(action.loop)) is not None and several.combine is not None:
            yield several.combine
    if action.phased is not None:
        yield from (action for _, action in phases_of(action.phased))
    if action.gepa is not None:
        yield action.gepa.run
    if (judged := action.loop or action.phased or action.gepa) is not None:
        yield from judging_actions(judged)


def judging_actions(judged: Judged) -> Iterator[Action]:
    """Iterate over the actions directly inside the evaluators of a part."""
    for evaluator in evaluators(judged):
        if evaluator.score is not None and evaluator.score.of is not None:
            yield evaluator.score.of
        if evaluator.dataset is not None:
            yield evaluator.dataset.run
            yield from judging_actions(evaluator.dataset)


def actions_of(document: Document) -> Iterator[Action]:
    """Iterate over the steps of a document, or over the actions of its evaluation."""
    yield from document.steps
    if document.eval is not None:
        yield document.eval.task
        yield from judging_actions(document.eval)


def several_of(loop: LoopSpec) -> CandidatesSpec | None:
    """Return the candidates that a loop declares with more than their number."""
    return loop.candidates if isinstance(loop.candidates, CandidatesSpec) else None


def has_groups(document: Document) -> bool:
    """Return whether the output of some steps is that of a group: all of their outputs, or the last one."""
    return any(
        isinstance(part, Action) and part.output is not None and bool(part.steps or part.parallel)
        for part in parts(document)
    )


def phases_of(spec: PhasedSpec) -> Iterator[tuple[str, Action]]:
    """Iterate over the phases of an agent that have a step, each with its step."""
    from ...agents.phased_run import PHASES

    for phase in PHASES:
        if (action := getattr(spec, phase)) is not None:
            yield phase, action


def phase_limits(spec: PhasedSpec) -> tuple[dict[str, int], int]:
    """Return the limits of an agent's phases by name, and the limit of all phases together."""
    from ...agents.phased import effective, preset

    usual = preset(spec.role or spec.preset, spec.task_complexity or "")
    limits = {}
    for phase, _ in phases_of(spec):
        name = f"max_{phase}_iterations"
        value = getattr(spec, name)
        limits[phase] = int(usual[name]) if value is None else value
    return limits, effective(sum(limits.values()), spec.max_iterations)


Judged = LoopSpec | PhasedSpec | CaseFields | GepaSpec  # what has evaluators


def evaluators(loop: Judged) -> Iterator[EvaluateSpec]:
    """Iterate over the evaluators of a loop or agent, including the judges of sentences in `until`."""
    yield from (evaluator for _, evaluator in placed_evaluators(loop))
    # A sentence in `until` is a judge, with the same costs.
    for sentence, model in dict(questions(getattr(loop, "until", None))).items():
        yield EvaluateSpec(judge=JudgeSpec(criterion=sentence, model=model))


def placed_evaluators(loop: Judged, at: Location = ()) -> Iterator[tuple[Location, EvaluateSpec]]:
    """Iterate over the evaluators that a loop or agent at a place declares, each with its own place."""
    if isinstance(loop.evaluate, list):
        yield from (((*at, "evaluate", i), one) for i, one in enumerate(loop.evaluate))
    elif loop.evaluate is not None:
        yield (*at, "evaluate"), loop.evaluate


def models_in(document: Document) -> Iterator[str]:
    """Iterate over the models that a document names, each as `provider:model`."""
    yield from _models_named(document)
    if document.eval is not None:
        yield from _models_judging(document.eval)
    for action in actions_of(document):
        yield from _models_of(action)


def _models_named(spec: Json) -> Iterator[str]:
    if spec.model:
        yield spec.model
    yield from spec.models or ()


def _models_of(action: Action) -> Iterator[str]:
    yield from _models_named(action)
    if action.reasoning is not None:
        yield from _models_named(action.reasoning)
    if action.loop is not None and (several := several_of(action.loop)) is not None:
        yield from _models_named(several.judge) if several.judge is not None else ()
    if action.gepa is not None and action.gepa.model:
        yield action.gepa.model
    if (judged := action.loop or action.phased or action.gepa) is not None:
        yield from _models_judging(judged)
    if action.consensus is not None:
        yield from (voter.model for voter in action.consensus.voters if voter.model)
    for inner in inner_actions(action):
        yield from _models_of(inner)


def _models_judging(judged: Judged) -> Iterator[str]:
    for evaluator in evaluators(judged):
        if evaluator.judge is not None and not isinstance(evaluator.judge, str):
            yield from _models_named(evaluator.judge)
        if evaluator.confidence is not None:
            yield from _models_named(evaluator.confidence)
        if evaluator.dataset is not None:
            yield from _models_judging(evaluator.dataset)


def conditions_in(tree: Json) -> Iterator[tuple[str, Json]]:
    """Iterate over the conditions in a list or tree of `until` or `guards`, each as its tag and its value.

    A sentence has the tag `judged`. A class of Python, and a condition in the format of `termination`, has the tag
    `python` or `type`, and all of its fields as the value.
    """
    if isinstance(tree, str):
        yield ("judged", tree) if " " in tree.strip() else (tree, None)
    elif isinstance(tree, list):
        for item in tree:
            yield from conditions_in(item)
    elif has_type(tree):
        yield "type", tree
        yield from conditions_in(tree.get("conditions"))
    elif isinstance(tree, Mapping) and "python" in tree:
        yield "python", tree
    elif isinstance(tree, Mapping):
        for tag, value in tree.items():
            if tag in ("any_of", "all_of"):
                yield from conditions_in(value)
            else:
                yield tag, value


def questions(until: Json) -> Iterator[tuple[str, str | None]]:
    """Iterate over the sentences in a condition tree, each with its own model or None."""
    for tag, value in conditions_in(until):
        if tag == "judged" and isinstance(value, Mapping):
            yield str(value.get("sentence", "")), value.get("model")
        elif tag == "judged":
            yield str(value), None


def condition_limit(loop: LoopSpec) -> int:
    """Return the maximum of iterations that a loop's conditions allow."""
    limits = [*_limits(loop.ends[1]), *_limits(loop.guards)]
    if loop.max_iterations is not None:
        limits.append(loop.max_iterations)
    return min(
        limits, default=max(DEFAULT_LIMIT, loop.min_iterations), key=lambda n: min(n, CEILING)
    )


def _limits(tree: Json) -> Iterator[int]:
    for tag, value in conditions_in(tree):
        kind = value["type"] if tag == "type" else tag
        limit = value.get("limit") if isinstance(value, Mapping) else value
        # An invalid limit is reported by the compiler.
        if kind in ("max_iterations", "phase_limit") and isinstance(limit, int):
            yield limit


def is_loop(spec: Action) -> bool:
    """Whether it is a loop, a list or an agent."""
    return any(one is not None for one in (spec.loop, spec.each, spec.phased, spec.reasoning))


def holds_loops(spec: Action) -> bool:
    """Whether a loop may have ended with a step: the step itself, or one of its parallel or fallback steps."""
    if is_loop(spec):
        return True
    return any(holds_loops(inner) for inner in (*(spec.parallel or ()), *(spec.fallback or ())))


def running_order(specs: list[StepSpec]) -> list[int]:
    """Return the order in which steps can run: document order, where a step moves behind its needs."""
    # Steps of a cycle keep their order; the workflow reports the cycle.
    done: set[str] = set()
    names = {spec.name for spec in specs}
    remaining = list(range(len(specs)))
    order: list[int] = []
    while remaining:
        ready = next(
            (i for i in remaining if all(n in done or n not in names for n in specs[i].needs)),
            remaining[0],
        )
        order.append(ready)
        done.add(specs[ready].name)
        remaining.remove(ready)
    return order


def given_needs(specs: Sequence[StepSpec]) -> dict[str, list[str]]:
    """Return the `needs` of each step, without names that are not among these steps."""
    names = {spec.name for spec in specs}
    return {spec.name: [n for n in spec.needs if n in names] for spec in specs}


def needs_of(
    document: Document, used: Sequence[tuple[Location, frozenset[str]]]
) -> dict[str, list[str]]:
    """Return the needs of each step. With concurrent steps, a step also needs the earlier steps that it names."""
    needs = given_needs(document.steps)
    # In document order every earlier step has ended anyway.
    if document.at_once == 1:
        return needs
    before: list[str] = []
    for i in running_order(document.steps):
        name = document.steps[i].name
        named = frozenset().union(*(n for path, n in used if path[:2] == ("steps", i)))
        plain = {value.removeprefix("steps.").removeprefix("loops.") for value in named}
        needs[name] += [other for other in before if other in plain and other not in needs[name]]
        before.append(name)
    return needs
