"""The measurements of a confirmation: each is an effect on the files of its own iteration, and none is ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..conditions import MaxIterations, PhaseLimit
from ..errors import ConfigurationError
from ..records import MINIMISE, Evaluation, Iteration, as_evaluation
from ..records.codec import Json
from .confirmation import Confirm, Sample, Standing, confirmation
from .loop_options import LoopOptions, acting
from .metrics import TAKES, LoopMetrics
from .plan import RefineFrom
from .step import Step, as_step

if TYPE_CHECKING:
    from .loop import LoopRun  # it imports this module

__all__ = [
    "check_confirm",
    "confirmed",
]

_ALWAYS = "it always continues from the last accepted iteration"
EXACT = "measures_exactly"  # the code of a warning
MEAN = TAKES["mean"]


def check_confirm(loop: LoopOptions[Any, Any]) -> None:
    """Refuse a loop whose measurements cannot be confirmed.

    Raises:
        ConfigurationError: names the option.
    """

    def refuse(why: str, *, option: str = "confirm") -> None:
        raise ConfigurationError(f"loop {loop.name}: confirm: {why}", option=option)

    if not isinstance(loop.confirm, Confirm):
        refuse(f"{loop.confirm!r:.60} is not a Confirm; use Confirm(alpha=0.05)")
    if loop.measured is None or not loop.measured.objective or loop.evaluate is None:
        refuse(
            "it needs an evaluator and an objective; declare metrics, such as metrics: {val_loss: minimise}"
        )
        return
    stall, rule = loop.on_stall, loop.refine_from
    if stall is not None and stall.then in ("last", "fresh"):
        refuse(f"{_ALWAYS}; on_stall: {stall.then} does not, use best", option="on_stall")
    if rule is not None and (word := RefineFrom.of(rule).rule) != "best":
        refuse(f"{_ALWAYS}; remove refine_from: {word}", option="refine_from")
    evaluate = as_step(loop.evaluate)
    for step in acting(evaluate):
        refuse(
            f"{step.name} must not run twice, and a measurement is repeated; declare it with idempotent=True, "
            "or remove confirm"
        )
    for tool in _asking(evaluate):
        refuse(f"a person approves {tool.name}, and a measurement is repeated; remove approve")


def _asking(step: Step) -> Iterable[Step]:
    tools = getattr(step, "tools", ())
    for tool in getattr(tools, "tools", tools):
        if getattr(tool, "approve", False):
            yield tool
    for part in step.parts():
        yield from _asking(part)


async def confirmed(loop_run: LoopRun, item: Iteration) -> Evaluation:
    """Return the evaluation of an iteration with its confirmation in `details`, and the means of new measurements.

    Args:
        loop_run: the run of the loop.
        item: the record of the iteration so far, or of the input with the number 0.
    """
    metrics, evaluation = loop_run.loop.measured, item.evaluation
    files, replay = loop_run.snapshots, loop_run.run_state.replay
    assert metrics is not None
    assert metrics.confirm is not None
    assert evaluation is not None
    if files is not None and item.number:
        item = replace(item, files=files.current)
    screening = sample_of(evaluation, metrics)
    if screening is None or not metrics.may_count(item):
        details = {key: item for key, item in evaluation.details.items() if key != "confirm"}
        return replace(evaluation, details=details)
    evaluate = loop_run.loop.evaluate
    assert evaluate is not None
    objective = metrics.metrics[metrics.objective]
    standing = _standing(loop_run, metrics, before=item.number)
    deciding = confirmation(
        metrics.confirm,
        standing,
        screening,
        item=item.number,
        limit=min(c.limit for c in loop_run.members if isinstance(c, MaxIterations | PhaseLimit)),
        sign=-1 if objective.direction == MINIMISE else 1,
        min_delta=objective.min_delta,
    )
    new: dict[str, list[Evaluation]] = {"base": [], "candidate": []}
    outputs = {"candidate": (item.output, item.files), "base": (item.output, item.files)}
    if standing.base is not None:
        outputs["base"] = _base(loop_run)
    snapshot = None if files is None else files.current
    if not item.number and replay is not None and replay.began(f"{loop_run.path}/1") is not None:
        # All is on record, and a difference in the files is an edit of a person, which the loop adopts.
        files = None
    try:
        side = next(deciding)
        while True:
            output, place = outputs[side]
            if files is not None:
                await files.show(place)
            path = f"confirm/{side}-{len(new[side]) + 1}"
            measured = as_evaluation(await loop_run.ctx.call(path, evaluate, output))
            new[side].append(measured)
            failed = item.number and side == "candidate" and measured.passed is False
            side = deciding.send(None if failed else sample_of(measured, metrics))
    except StopIteration as end:
        record: dict[str, Json] = end.value
    finally:
        # Also after a failure: the iteration is recorded with its own files.
        if files is not None and (new["base"] or new["candidate"]):
            await files.show(snapshot)
    if record.get("exact"):
        loop_run.ctx.warn(
            f"measurements of {metrics.objective} do not differ, so one of each iteration is enough to compare",
            code=EXACT,
        )
    return _with(evaluation, record, new["base" if standing.base is None else "candidate"], metrics)


def sample_of(evaluation: Evaluation, metrics: LoopMetrics) -> Sample | None:
    """Return the value of the objective, of a data set those of its cases; None without one."""
    value = evaluation.metrics.get(metrics.objective)
    if value is None or evaluation.undecided:
        return None
    samples = evaluation.details.get("samples")
    cases = samples.get(metrics.objective) if isinstance(samples, Mapping) else None
    return cases if isinstance(cases, Mapping) and cases else value


def _standing(loop_run: LoopRun, metrics: LoopMetrics, *, before: int) -> Standing:
    """Return what the records say before an iteration, with that of the input."""
    assert metrics.confirm is not None
    standing = Standing(metrics.confirm.alpha, loop_run.loop.limit)
    baseline = Iteration(0, evaluation=loop_run.scope.baseline)
    for item in (baseline, *loop_run.history) if before else ():
        if (record := metrics.confirmation(item)) is not None:
            standing.add(item.number, record)
    return standing


def _base(loop_run: LoopRun) -> tuple[Json, Mapping[str, Json] | None]:
    """Return the output and the files of the last accepted iteration, or of the beginning."""
    best, files = loop_run.history.best, loop_run.snapshots
    if best is not None:
        return best.output, best.files
    return loop_run.scope.initial, None if files is None else files.base


def _with(
    evaluation: Evaluation, record: dict[str, Json], new: list[Evaluation], metrics: LoopMetrics
) -> Evaluation:
    """Return an evaluation with the record, and with the means of what was measured anew."""
    values = dict(evaluation.metrics)
    for name in values:
        several = [one.metrics[name] for one in new if name in one.metrics]
        # The first evaluation of a base was not chosen for its value, so it counts.
        several += [values[name]] if "of" not in record else []
        if several:
            values[name] = MEAN(several)
    if "candidate" in record:
        values[metrics.objective] = MEAN(record["candidate"])
    details = {**evaluation.details, "confirm": record}
    return replace(evaluation, metrics=values, details=details)
