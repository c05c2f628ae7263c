"""Documents and Python steps with the settings of the command line: to run, to measure their judge, or to replay.

This module is slow to load; `sources.documents_module` loads it when it is needed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .. import insight
from ..documents import Loaded, Settings, load
from ..documents.compiler.functions import function
from ..documents.project import Recorded
from ..documents.trust import LocalActions, TrustStore, program_actions
from ..engine.loop import Loop
from ..engine.step import Step, as_step
from ..errors import ConfigurationError, LoopwrightError, nearest
from ..journal import Entry, Journal, RunInfo
from ..records.codec import Json
from .journals import find_run
from .sources import RunSource, SourceSettings, load_again

if TYPE_CHECKING:
    from ..evaluators.judge import Judge
    from ..evaluators.pairs import PairJudge

__all__ = [
    "LocalActions",
    "TrustStore",
    "document_of",
    "judge_of",
    "measurement_of",
    "models_of",
    "pair_judge_of",
    "program_of",
    "recordings_in",
    "selected_runs",
    "without_effects",
]

_Kind = TypeVar("_Kind")


def judge_of(step: Step, name: str, wanted: str = "") -> Judge:
    """Return the judge of a step.

    Args:
        step: the step, such as a workflow.
        name: the name of its document, for messages.
        wanted: the step that has the judge. Default: the only judge.

    Raises:
        ConfigurationError: without a judge, or with several.
    """
    from ..evaluators.judge import Judge

    judges = dict(_of_kind(Judge, step, ""))
    if not judges:
        raise ConfigurationError(f"{name}: this document has no judge")
    return _wanted(judges, name, wanted)


def pair_judge_of(step: Step, name: str, wanted: str = "") -> PairJudge:
    """Return the judge of pairs of a step, as `judge_of` returns its judge of outputs.

    Raises:
        ConfigurationError: without such a judge, or with several.
    """
    from ..evaluators.pairs import PairJudge

    judges = dict(_of_kind(PairJudge, step, ""))
    if not judges:
        raise ConfigurationError(
            f"{name}: this document has no judge of pairs. It is the key judge of candidates with pick: duel."
        )
    return _wanted(judges, name, wanted)


def _wanted(judges: Mapping[str, _Kind], name: str, wanted: str) -> _Kind:
    """Return the judge in the step `wanted`, or the only one."""
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
        bench: how the run measures: `step`, `at_once`, and `votes` for a judge of outputs.
    """
    place = source.step, source.name, str(bench["step"])
    step: Step
    if "votes" in bench:
        judge = judge_of(*place)
        step = insight.JudgeMeasurement(judge, votes=bench["votes"], at_once=bench["at_once"])
    else:
        step = insight.PairMeasurement(pair_judge_of(*place), at_once=bench["at_once"])
    changed = {"step": step, "source": {**source.source, "bench": dict(bench)}}
    return cast("RunSource", replace(cast("Any", source), **changed))


def _of_kind(kind: type[_Kind], step: Step, path: str) -> Iterator[tuple[str, _Kind]]:
    here = f"{path}/{step.name}".strip("/")
    if isinstance(step, kind):
        yield here, step
        return
    for part in _parts(step):
        yield from _of_kind(kind, part, here)


def _parts(step: Step) -> list[Step]:
    parts = getattr(step, "parts", None)
    inner = list(parts()) if callable(parts) else []
    # Gates have members and no parts.
    members = () if isinstance(step, Loop) else getattr(step, "members", ())
    return inner or [part for _, part in members]


# The scripted model and the redactor have no effects.
_KEPT_RESOURCES = (
    "models",
    "model",
    "model_url",
    "redactor",
    "cache",
)  # resources that a dry run keeps


def document_of(
    what: str,
    settings: SourceSettings,
    *,
    execute: bool,
    root: str,
    contents: Mapping[Path, bytes] | None,
) -> Loaded:
    """Load a document with the settings of the command line."""
    document_settings = Settings(
        sets=settings.sets, model=settings.model, model_url=settings.model_url, replies=settings.replies,
        transcript=settings.transcript, cache=settings.cache, agents=settings.agents, **settings.limits(),
        environ=os.environ, providers=() if settings.replies else None,
        root=Path(root) if root else None, execute=execute, agreed=contents,
        lenient=settings.lenient, evaluation=settings.evaluation,
        recorded=Recorded.from_json(settings.documents, only=settings.recorded_only),
    )  # fmt: skip
    return load(what, document_settings)


def program_of(
    reference: str, root: str, *, execute: bool, contents: Mapping[Path, bytes] | None
) -> tuple[Step | None, LocalActions]:
    """Return a step of a Python program, None without `execute`, and what needs approval to import it."""
    actions = program_actions(reference, Path(root), contents)
    step = as_step(function(reference, Path(root), contents)) if execute else None
    return step, actions


def models_of(settings: SourceSettings) -> Mapping[str, Any]:
    """Return the models of a Python step with the settings of the command line."""
    from ..documents.compiler.prompts import models_alone

    return models_alone(
        Settings(
            model=settings.model, model_url=settings.model_url, replies=settings.replies,
            transcript=settings.transcript, environ=os.environ,
        )
    )  # fmt: skip


def without_effects(source: RunSource) -> RunSource:
    """Return a source whose effects are replaced by the rules of its scripted model."""
    from ..models.scripted import dry_run_resources

    resources = {
        name: source.resources[name] for name in _KEPT_RESOURCES if name in source.resources
    }
    resources |= dry_run_resources(resources["models"].model)
    return cast("RunSource", replace(cast("Any", source), resources=resources))


async def selected_runs(
    store: Journal, selectors: Sequence[str], *, mix: bool
) -> list[tuple[RunInfo, list[Entry]]]:
    """Return the runs that selectors name, with their entries; see `insight.selected`."""
    names = [s if ":" in s else (await find_run(store, s)).run_id for s in selectors]
    runs = await insight.selected(store, names, now=time.time(), mix=mix)
    return [(info, await store.entries(info.run_id)) for info in runs]


def recordings_in(runs: Sequence[tuple[RunInfo, list[Entry]]], name: str) -> insight.Recordings:
    """Return the recordings of a loop, decided as each run was: by the rules that are recorded with it."""
    loops: dict[str, Loop | insight.LeftOut] = {}
    items: list[insight.Recording] = []
    left_out: list[insight.LeftOut] = []
    for info, entries in runs:
        # The limits of the command line are part of the source, and not of the fingerprint.
        key = info.fingerprint + json.dumps(
            {k: v for k, v in info.source.items() if k not in ("documents", "code")}, sort_keys=True
        )
        if key not in loops:
            loops[key] = _loop_of(info, name)
        loop = loops[key]
        if isinstance(loop, insight.LeftOut):
            left_out.append(insight.LeftOut(info.run_id, loop.why))
            continue
        for one in insight.recordings_of(info, entries, loop):
            if isinstance(one, insight.LeftOut):
                left_out.append(one)
            else:
                items.append(one)
    found = next((loop.name for loop in loops.values() if isinstance(loop, Loop)), name)
    return insight.Recordings(found, items, left_out)


def _loop_of(info: RunInfo, name: str) -> Loop | insight.LeftOut:
    if (loop := insight.recorded_loop(info, name)) is not None:
        return loop
    # Recorded before the rules were: the documents that are kept with the run.
    if "file" in info.source and "documents" not in info.source:
        return insight.LeftOut(info.run_id, "its document was too large to be kept with the run")
    try:
        step = load_again(info, SourceSettings(recorded_only=True), execute=False).step
    except LoopwrightError as error:
        return insight.LeftOut(info.run_id, str(error).splitlines()[0])
    return insight.loop_named(step, name)
