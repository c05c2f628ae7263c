"""Metrics of documents: their evaluators, and the declarations of loops."""

from __future__ import annotations

from collections.abc import Mapping

from ...coding.sealed.evaluators import sealed_metric
from ...engine.metrics import Metric, MetricScore
from ...engine.step import Step
from ...evaluators.metric import metric
from ...records import MAXIMISE, MINIMISE
from ...records.codec import Json
from ..project import Sent
from ..schema.document import LoopSpec
from ..schema.metrics import SEAL_KEYS, DeclaredMetric, MetricSpec
from ..yaml.source import Location
from .compilation import Compilation
from .tools import compile_sandbox, is_constant, record_variables

__all__ = ["compile_metric", "metric_options"]


MEASURED = {"pattern", "unit", "repeats", "take", "gates", "at_once", "idea", "pass_env"}


def compile_metric(compilation: Compilation, spec: MetricSpec, path: Location) -> Step | None:
    """Compile the evaluator of a metric; None if it has problems."""
    commands = [(spec.command, (*path, "command"))] if spec.command is not None else []
    commands += [(gate, (*path, "gates", i)) for i, gate in enumerate(spec.gates)]
    problems = [at for command, at in commands if not is_constant(compilation, command, at)]
    if problems:
        return None
    options: dict[str, Json] = spec.model_dump(include=MEASURED)
    if (command := spec.command) is None:
        return compilation.attempt(path, lambda: metric(spec.name, **options))
    compilation.inside(spec.idea, (*path, "idea"))
    compilation.project.sent.append(Sent(f"{spec.idea} of the workspace"))
    record_variables(compilation, spec.pass_env, f"the metric {spec.name}")
    options["cwd"] = compilation.inside(spec.cwd or ".", (*path, "cwd"))
    # A measurement needs no network.
    options["sandbox"] = compile_sandbox(compilation, spec.sandbox, network=False)
    options |= spec.model_dump(include={"env", "timeout"})
    if not spec.sealed:
        return compilation.attempt(path, lambda: metric(spec.name, command, **options))
    if spec.setup and not is_constant(compilation, spec.setup, (*path, "setup")):
        return None
    options |= spec.model_dump(include=set(SEAL_KEYS))
    return compilation.attempt(path, lambda: sealed_metric(spec.name, command, **options))


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
