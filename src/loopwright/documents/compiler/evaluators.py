"""Evaluators of documents: checks, checklists, scores, judges, rubrics and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ...engine.early import Early
from ...engine.metrics import Metric, MetricScore
from ...engine.step import Step, as_step
from ...evaluators.check import check
from ...evaluators.gates import checklist, gates
from ...evaluators.metric import Measurement, metric_of
from ...evaluators.rubric import TOKENS, Rubric
from ...evaluators.score import score
from ...evaluators.test_report import test_report
from ...records import MAXIMISE, MINIMISE
from ...records.codec import Json
from ..project import Sent
from ..schema.document import (
    CaseFields,
    EvaluateSpec,
    GepaSpec,
    LoopSpec,
    PhasedSpec,
    ScoreSpec,
)
from ..schema.evaluators import (
    SEAL_KEYS,
    CheckSpec,
    ConfidenceSpec,
    DeclaredMetric,
    JudgeSpec,
    MetricSpec,
    TestsSpec,
)
from ..schema.traverse import placed_evaluators
from ..yaml.reader import Location
from .compilation import Compilation
from .prompts import compile_judge, compile_settings
from .tools import command_value, compile_sandbox, is_constant, record_variables

__all__ = [
    "compile_evaluators",
    "compile_metric",
    "metric_options",
]

FORMER = {"unit": "s", "repeats": 3, "take": "median"}  # of the evaluator, with an example of each


def compile_metric(compilation: Compilation, spec: MetricSpec, path: Location) -> Step | None:
    """Compile the evaluator of a metric; None if it has problems."""
    commands = [(spec.command, (*path, "command"))] if spec.command is not None else []
    commands += [(gate, (*path, "gates", i)) for i, gate in enumerate(spec.gates)]
    problems = [at for command, at in commands if not is_constant(compilation, command, at)]
    written = [key for key in FORMER if key in spec.model_fields_set]
    for key in () if compilation.project.recorded else written:
        example = f"metrics: {{{spec.name}: {{minimise: true, {key}: {FORMER[key]}}}}}"
        what = f"is a key of the metrics of the loop now; write {example} in the loop"
        compilation.problem((*path, key), what, key=True)
    if problems:
        return None
    early = None if spec.early is None else Early(**spec.early.model_dump())
    measurement = compilation.attempt(
        path,
        lambda: Measurement(spec.name, spec.unit, spec.pattern, spec.at_once, spec.idea, early),
    )
    if measurement is None:
        return None
    options: dict[str, Json] = spec.model_dump(include={"repeats", "take", "gates"})
    if (command := spec.command) is None:
        return compilation.attempt(
            path, lambda: metric_of(measurement, None, pass_env=spec.pass_env, **options)
        )
    compilation.inside(spec.idea, (*path, "idea"))
    compilation.project.sent.append(Sent(f"{spec.idea} of the workspace"))
    record_variables(compilation, spec.pass_env, f"the metric {spec.name}")
    options["cwd"] = compilation.inside(spec.cwd or ".", (*path, "cwd"))
    # A measurement needs no network.
    sandbox = compile_sandbox(compilation, spec.sandbox, network=False)
    runs: dict[str, Json] = spec.model_dump(include={"env", "timeout", "pass_env"})
    if not spec.sealed:
        return compilation.attempt(
            path,
            lambda: metric_of(measurement, command, **options, **runs, sandbox=sandbox),
        )
    if spec.setup and not is_constant(compilation, spec.setup, (*path, "setup")):
        return None
    from ...coding.sealed.evaluators import sealed_metric_of
    from ...coding.sealed.measure import TestCommand, isolated
    from ...coding.sealed.verdict import SealOptions

    seal = spec.model_dump(include=set(SEAL_KEYS))
    return compilation.attempt(
        path,
        lambda: sealed_metric_of(
            measurement,
            TestCommand(command, report="none", sandbox=isolated(sandbox), **runs),
            SealOptions.of(f"metric {spec.name}", **seal),
            **options,
        ),
    )


def metric_options(
    compilation: Compilation, spec: LoopSpec, path: Location
) -> Mapping[str, Json] | None:
    """Return the options of a loop on metrics; None if they have problems."""
    options: dict[str, Json] = {}
    if spec.metrics:
        declared = compilation.attempt(
            (*path, "metrics"),
            lambda: {name: _declared(item) for name, item in spec.metrics.items()},
        )
        if declared is None:
            return None
        options["metrics"] = declared
    if spec.objective:
        options["objective"] = spec.objective
    if spec.confirm is not None:
        from ...engine.confirmation import Confirm  # for the few loops that have it

        fields = spec.confirm.model_dump()
        options["confirm"] = compilation.attempt((*path, "confirm"), lambda: Confirm(**fields))
        if options["confirm"] is None:
            return None
    if (score := spec.score) is not None:
        fields = score.model_dump()
        options["score"] = compilation.attempt((*path, "score"), lambda: MetricScore(**fields))
        if options["score"] is None:
            return None
    return options


def _declared(item: DeclaredMetric | str) -> Metric:
    if isinstance(item, str):
        return Metric(item)
    direction = MINIMISE if item.minimise else MAXIMISE if item.maximise else ""
    return Metric(direction, **item.model_dump(exclude={"minimise", "maximise"}))


def compile_evaluators(
    compilation: Compilation,
    spec: LoopSpec | PhasedSpec | CaseFields | GepaSpec,
    path: Location,
    judges: Sequence[JudgeSpec] = (),
    *,
    gated: bool = False,
) -> Step | None:
    """Compile evaluators in the order in which they run: deterministic evaluators before models.

    With `gated`, a single evaluator is a gate too, so that it has the path that it had in recorded runs, in
    which sentences of `until` were evaluators after it.
    """
    deterministic: list[Step | None] = []
    measured: list[Step | None] = []
    model_based: list[Step | None] = []
    graded = False
    for at, one in placed_evaluators(spec, path):
        graded = graded or one.graded
        deterministic += _deterministic(compilation, one, at)
        if one.metric is not None:
            place = (*at, "metric")
            measured.append(compile_metric(compilation, one.metric, place))
            if one.metric.early is not None and not _has_direction(spec, one.metric.name):
                what = (
                    f"needs a direction; write metrics: {{{one.metric.name}: minimise}} in the loop"
                )
                compilation.problem((*place, "early"), what, key=True)
        if one.judge_spec is not None:
            model_based.append(_judge(compilation, one.judge_spec, (*at, "judge")))
        if one.confidence is not None:
            place = (*at, "confidence")
            model_based.append(compile_confidence(compilation, one.confidence, place))
        if one.dataset is not None:
            from .datasets import compile_dataset  # for the few loops that have one

            model_based.append(compile_dataset(compilation, one.dataset, (*at, "dataset")))
    model_based += [_judge(compilation, judge, (*path, "until")) for judge in judges]
    # Checks are free and cannot be persuaded. An output that fails one is not sent to a model.
    every = [*deterministic, *measured, *model_based]
    return _combined(every, graded=graded, least=1 if gated else 2)


def _has_direction(spec: LoopSpec | PhasedSpec | CaseFields | GepaSpec, name: str) -> bool:
    """Return whether a loop says which values of a metric are better."""
    declared = spec.metrics.get(name) if isinstance(spec, LoopSpec) else None
    return isinstance(declared, str) or (
        declared is not None and (declared.minimise or declared.maximise)
    )


def _combined(steps: Iterable[Step | None], *, graded: bool = False, least: int = 2) -> Step | None:
    """Return several evaluators as one, without those that have problems."""
    compiled = [step for step in steps if step is not None]
    if len(compiled) < least:
        return compiled[0] if compiled else None
    combined: Step = gates(*compiled, graded=graded)
    return combined


def _judge(compilation: Compilation, spec: JudgeSpec, at: Location) -> Step | None:
    compiled = compile_judge(compilation, spec, at)
    if compiled is None or spec.of != "changes":
        return compiled
    from ...coding.until import JudgeOfChanges

    asked = compiled.model_settings
    models = tuple((model, asked.base_url) for model in asked.models)
    compilation.project.sent.append(Sent("the changes of the workspace", models=models))
    return JudgeOfChanges(compiled)


def _deterministic(
    compilation: Compilation, spec: EvaluateSpec, path: Location
) -> list[Step | None]:
    compiled: list[Step | None] = []
    if isinstance(spec.check, str):
        if "case.inputs" not in compilation.defined:
            compilation.problem((*path, "check"), "equals_expected needs a case of a data set")
        from ...evaluators.cases import equals_expected

        compiled.append(as_step(equals_expected, name="check"))
    elif spec.check is not None:
        compiled.append(_check(compilation, spec.check, (*path, "check")))
    if spec.checklist is not None:
        compiled.append(_checklist(compilation, spec.checklist, (*path, "checklist")))
    if spec.score is not None:
        compiled.append(_score(compilation, spec.score, (*path, "score")))
    if spec.tests_spec is not None:
        at = (*path, "tests")
        whole = isinstance(spec.tests, TestsSpec)
        place = (*at, "command") if whole else at
        compiled.append(_tests(compilation, spec.tests_spec, at, place))
    if spec.python is not None:
        function = compilation.function((*path, "python"), spec.python)
        if function is not None:
            compiled.append(compilation.attempt(path, lambda: as_step(function, name="evaluate")))
    return compiled


def _check(compilation: Compilation, spec: CheckSpec, path: Location) -> Step | None:
    parts: list[Step | None] = []
    for kind in spec.tests:
        value = getattr(spec, kind)
        at = (*path, kind.rstrip("_"))
        options: dict[str, Json] = {}
        if kind == "python":
            value = compilation.function(at, value)
            if value is None:
                continue
            compiled = compilation.attempt(at, partial(check, value, name=spec.name or ""))
        else:
            if kind == "command":
                is_constant(compilation, value, at)
                cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
                env = {
                    k: command_value(compilation, (*path, "env", k), v) for k, v in spec.env.items()
                }
                sandbox = compile_sandbox(compilation, spec.sandbox, network=False)
                options = {"cwd": cwd, "env": env, "timeout": spec.timeout, "sandbox": sandbox}
                if spec.score is not None:
                    options["score"] = spec.score
            keyword = {kind.rstrip("_"): value}
            compiled = compilation.attempt(
                at, partial(check, name=spec.name or "", **keyword, **options)
            )
        parts.append(compiled)
    return _combined(parts)


def _checklist(compilation: Compilation, specs: list[CheckSpec], path: Location) -> Step | None:
    items: dict[str, Step] = {}
    weights: dict[str, float] = {}
    for i, spec in enumerate(specs):
        # Feedback and weights find an item by its name, so it must have one.
        name = spec.name or ", ".join(f"{t.rstrip('_')} {getattr(spec, t)}" for t in spec.tests)
        if name in items:
            compilation.problem((*path, i), f"the checklist has two items named {name!r}")
            continue
        result = _check(compilation, spec, (*path, i))
        if result is not None:
            items[name], weights[name] = result, spec.weight
    return checklist(items, weights=weights) if items else None


def _score(compilation: Compilation, spec: ScoreSpec, path: Location) -> Step | None:
    if spec.tests is not None:
        command = spec.tests
        is_constant(compilation, command, (*path, "tests"))
        cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
        if spec.report is not None:
            compilation.inside(spec.report, (*path, "report"), folder=Path(cwd))
        return compilation.attempt(
            path,
            lambda: test_report(command, report=spec.report, cwd=cwd, timeout=spec.timeout),
        )
    if spec.report is not None:
        compilation.problem((*path, "report"), "report is written by tests; add tests")
        return None
    of = None if spec.of is None else compilation.action(spec.of, "of", (*path, "of"))
    low, high = spec.scale
    return compilation.attempt(
        path,
        lambda: score(spec.label, (low, high), pattern=spec.pattern or "", of=of),
    )


def _tests(compilation: Compilation, spec: TestsSpec, path: Location, at: Location) -> Step | None:
    """Compile sealed tests, whose command is written at `at`."""
    from ...coding.sealed.evaluators import tests

    if not is_constant(compilation, spec.command, at):
        return None
    if spec.setup and not is_constant(compilation, spec.setup, (*path, "setup")):
        return None
    record_variables(compilation, spec.pass_env, "the tests")
    cwd = compilation.inside(spec.cwd or ".", (*path, "cwd"))
    options = spec.model_dump(exclude={"command", "cwd", "held_out", "sandbox"})
    if spec.held_out is not None:
        # Outside of the workspace on purpose, and often outside of the project.
        hidden = options["held_out"] = compilation.folder / spec.held_out
        compilation.need_folder((*path, "held_out"), hidden)
    # A check needs no network, and the tests of an agent must not need one either.
    options["sandbox"] = compile_sandbox(compilation, spec.sandbox, network=False)
    return compilation.attempt(path, lambda: tests(spec.command, cwd=cwd, **options))


def compile_confidence(
    compilation: Compilation, spec: ConfidenceSpec, at: Location
) -> Rubric | None:
    """Compile a rating of weighted criteria; None if it has problems."""
    prompt_settings = compile_settings(
        compilation, spec, at, None, temperature=spec.temperature, cap=TOKENS
    )
    if prompt_settings is None:
        return None
    return compilation.attempt(
        at,
        lambda: Rubric(
            spec.criteria,
            model_settings=prompt_settings,
            goal=spec.goal or "",
            weights=spec.weights,
            threshold=spec.threshold,
            strict=spec.strict,
        ),
    )
