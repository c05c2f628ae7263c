"""Data sets of documents: evaluations in place of steps, and evaluators of loops."""

from __future__ import annotations

from collections.abc import Mapping

from ...datasets import Dataset
from ...datasets.dataset import HELD_OUT
from ...engine.step import Step
from ...errors import ConfigurationError, DocumentError
from ...evaluators.cases import OverCases
from ...evaluators.dataset import Minibatch, on_cases
from ...evaluators.running import evaluation
from ...records.codec import Json
from ..schema.datasets import DatasetFile, ErrorsSpec, SplitNames, share_of
from ..schema.document import Action, DatasetSpec, EvalSpec, GepaSpec
from ..yaml.reader import Location
from .compilation import Compilation
from .evaluators import compile_evaluators

__all__ = ["compile_dataset", "compile_eval", "compile_gepa"]

# `case` and, as the sign that it is the case of a data set and not a step of that name, a member of it.
CASE = ("case", "case.inputs")
FEW = 30  # held-out cases


def compile_eval(compilation: Compilation, spec: EvalSpec, at: Location) -> OverCases | None:
    """Compile an evaluation; None if it has problems."""
    changes = compilation.project.settings.evaluation
    given = {name: changes[name] for name in ("use", "repeat", "at_once") if name in changes}
    if "most" in changes:
        errors = spec.errors or ErrorsSpec()
        given["errors"] = errors.model_copy(update={"most": changes["most"]})
    spec, sample = spec.model_copy(update=given), changes.get("sample", 0)
    parts = _parts(compilation, spec, spec.dataset, (*at, "dataset"), "task", at)
    if parts is None:
        return None
    return compilation.attempt(
        (*at, "use"),
        lambda: evaluation("eval", *parts, use=_names(spec.use), sample=sample, **_options(spec)),
    )


def compile_dataset(compilation: Compilation, spec: DatasetSpec, at: Location) -> Step | None:
    """Compile the evaluator of a loop; None if it has problems."""
    parts = _parts(compilation, spec, spec, at, "run", at)
    if parts is None:
        return None
    batch = spec.minibatch

    def make() -> Step:
        drawn = None if batch is None else Minibatch(**batch.model_dump())
        return on_cases(*parts, use=_names(spec.use), minibatch=drawn, **_options(spec))

    return compilation.attempt(at, make)


def compile_gepa(compilation: Compilation, action: Action, name: str, at: Location) -> Step | None:
    """Compile texts that GEPA improves; None if they have problems."""
    from ...search import gepa

    assert action.gepa is not None
    spec, path = action.gepa, (*at, "gepa")
    parts = _parts(compilation, spec, spec.dataset, (*path, "dataset"), "run", path)
    asked = {"prompt": "{{ value }}"} | ({"model": spec.model} if spec.model else {})
    model = compilation.action(Action.model_validate(asked), "reflect", (*path, "model"))
    if parts is None or model is None:
        return None
    limits = spec.model_dump(include={"max_metric_calls", "patience"})
    return compilation.attempt(
        path, lambda: gepa(spec.optimise, *parts, model=model, name=name, **limits)
    )


def _parts(
    compilation: Compilation,
    spec: EvalSpec | DatasetSpec | GepaSpec,
    file: DatasetFile,
    place: Location,
    key: str,
    at: Location,
) -> tuple[Step, Dataset, Step] | None:
    """Return what runs on a case, the cases, and what evaluates its output; None if one of them has problems.

    `place` is that of the data set, `key` the field of what runs.
    """
    data = _data(compilation, file, place)
    inner, action = compilation.with_names(CASE), getattr(spec, key)
    step = inner.action(action, action.name or key, (*at, key))
    judge = compile_evaluators(inner, spec, at)
    return None if data is None or step is None or judge is None else (step, data, judge)


def _names(use: SplitNames | None) -> list[str]:
    return [use] if isinstance(use, str) else [*(use or ())]


def _options(spec: EvalSpec | DatasetSpec) -> Mapping[str, Json]:
    options = spec.model_dump(include={"at_once", "repeat", "show"})
    errors = spec.errors or ErrorsSpec()
    return {**options, "retry": errors.retry, "most_errors": share_of(errors.most)}


def _data(compilation: Compilation, spec: DatasetFile, at: Location) -> Dataset | None:
    """Load a data set; None, with a problem for each wrong line, if it cannot be read."""
    place, before = (*at, "file"), len(compilation.problems)
    file = compilation.sent(spec.file, place)
    if len(compilation.problems) > before:
        return None
    if file.is_dir():
        compilation.project.sent.pop()
        for part in sorted(file.iterdir()):
            compilation.sent(f"{spec.file}/{part.name}", place)
    options = spec.model_dump(include={"split", "group", "fields", "salt"})
    try:
        data = Dataset.load(file, **options)
        splits = data.splits
        compilation.project.cases[file] = len(data.use())
        held = splits.get(HELD_OUT, 0)
        # A split of a few cases by hash may leave it empty.
        if held < FEW and HELD_OUT in {*splits, *(spec.split or ())}:
            what = (
                f"{held or 'no'} cases are held out, and the mean of fewer than {FEW} says little"
            )
            note = compilation.source.problem(at, what, code="few_held_out")
            compilation.project.notes.append(note)
        return data
    except DocumentError as error:
        compilation.problems.extend(error.problems)
    except ConfigurationError as error:
        for line in str(error).splitlines():
            compilation.problem(place, line, own=True)
    return None
