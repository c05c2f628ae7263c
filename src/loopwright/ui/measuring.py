"""The judges of a source, and the measurement of one as a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from ..engine.loop import Loop
from ..engine.step import Step
from ..errors import ConfigurationError, nearest
from ..evaluators.judge.judge import Judge
from ..insight import JudgeMeasurement
from ..records.codec import Json
from .sources import RunSource

__all__ = ["judge_of", "measurement_of"]


def judge_of(step: Step, name: str, wanted: str = "") -> Judge:
    """Return the judge of a step.

    Args:
        step: the step, such as a workflow.
        name: the name of its document, for messages.
        wanted: the step that has the judge. Default: the only judge.

    Raises:
        ConfigurationError: without a judge, or with several.
    """
    judges = dict(_judges(step, ""))
    if not judges:
        raise ConfigurationError(f"{name}: this document has no judge")
    paths = [path for path in judges if not wanted or wanted in path.split("/")]
    if not paths:
        names = sorted({part for path in judges for part in path.split("/")})
        raise ConfigurationError(f"{name}: no judge in step {wanted!r}{nearest(wanted, names)}")
    if len(paths) > 1:
        raise ConfigurationError(
            f"{name}: there are {len(paths)} judges. Name a step, such as {name}#{paths[0]}."
        )
    return judges[paths[0]]


def measurement_of(source: RunSource, bench: Mapping[str, Json]) -> RunSource:
    """Return a source that measures a judge of another source.

    Args:
        source: the source with the judge.
        bench: how the run measures: `step`, `votes` and `at_once`.
    """
    judge = judge_of(source.step, source.name, str(bench["step"]))
    step = JudgeMeasurement(judge, votes=bench["votes"], at_once=bench["at_once"])
    changed = {"step": step, "source": {**source.source, "bench": dict(bench)}}
    return cast("RunSource", replace(cast("Any", source), **changed))


def _judges(step: Step, path: str) -> Iterator[tuple[str, Judge]]:
    here = f"{path}/{step.name}".strip("/")
    if isinstance(step, Judge):
        yield here, step
        return
    for part in _parts(step):
        yield from _judges(part, here)


def _parts(step: Step) -> list[Step]:
    parts = getattr(step, "parts", None)
    inner = list(parts()) if callable(parts) else []
    # Gates have members and no parts.
    members = () if isinstance(step, Loop) else getattr(step, "members", ())
    return inner or [part for _, part in members]
