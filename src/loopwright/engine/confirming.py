"""The measurements of a confirmation: each is an effect on the files of its own iteration, and none is ended early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..conditions import MaxIterations, PhaseLimit
from ..errors import ConfigurationError
from ..records import MINIMISE, Evaluation, Iteration, as_evaluation
from .confirmation import Confirm, Sample, Standing, confirmation
from .loop_options import LoopOptions, acting
from .metrics import TAKES
from .plan import RefineFrom
from .step import as_step

if TYPE_CHECKING:
    from .loop import LoopRun  # it imports this module

__all__ = [
    "check_confirm",
    "confirmed",
]

EXACT = "measures_exactly"  # the code of a warning
MEAN = TAKES["mean"]


def check_confirm(loop: LoopOptions[Any, Any]) -> None:
    """Refuse a loop whose measurements cannot be confirmed.

    Raises:
        ConfigurationError: names the option.
    """
    why, option, stall = "", "confirm", loop.on_stall
    always = "it always continues from the last accepted iteration"
    rule = RefineFrom.of("best" if loop.refine_from is None else loop.refine_from).rule
    step = next(acting(as_step(loop.evaluate), asks=True), None) if loop.evaluate else None
    if not isinstance(loop.confirm, Confirm):
        why = f"{loop.confirm!r:.60} is not a Confirm; use Confirm(alpha=0.05)"
    elif loop.measured is None or not loop.measured.objective or not loop.evaluate:
        why = "it needs an evaluator and an objective; declare metrics, such as metrics: {val_loss: minimise}"
    elif stall is not None and stall.then in ("last", "fresh"):
        why, option = f"{always}; on_stall: {stall.then} does not, use best", "on_stall"
    elif rule != "best":
        why, option = f"{always}; remove refine_from: {rule}", "refine_from"
    elif step is not None:
        why = (
            f"measurements are repeated, and {step.name} must not run twice, or asks a person; declare it with "
            "idempotent=True and without approve, or remove confirm"
        )
    if why:
        raise ConfigurationError(f"loop {loop.name}: confirm: {why}", option=option)


async def confirmed(loop_run: LoopRun, item: Iteration) -> Evaluation:
    """Return the evaluation of an iteration with its confirmation in `details`, and the means of new measurements.

    Args:
        loop_run: the run of the loop.
        item: the record of the iteration so far, or of the input with the number 0.
    """
    loop: Any = loop_run.loop  # of a loop with an evaluator and an objective
    metrics, files, replay = loop.measured, loop_run.snapshots, loop_run.run_state.replay
    evaluation: Evaluation = metrics.scored(item.evaluation)
    objective = metrics.metrics[metrics.objective]
    if files is not None and item.number:
        item = replace(item, files=files.current)
    screening = _sample(evaluation, metrics.objective)
    if screening is None or (item.number and not item.sound):
        details = {key: value for key, value in evaluation.details.items() if key != "confirm"}
        return replace(evaluation, details=details)
    standing, best, history = Standing(metrics.confirm.alpha, loop.limit), None, loop_run.history
    if item.number:
        best = history.best or Iteration(
            0, output=loop_run.scope.initial, files=None if files is None else files.base
        )
        for one in (Iteration(0, evaluation=loop_run.scope.baseline), *history):
            if (record := metrics.confirmation(one)) is not None:
                standing.add(one.number, record)
    elif replay is not None and replay.began(f"{loop_run.path}/1") is not None:
        # All is on record, and a difference in the files is an edit of a person, which the loop adopts.
        files = None
    deciding = confirmation(
        metrics.confirm,
        standing,
        screening,
        item=item.number,
        limit=min(c.limit for c in loop_run.members if isinstance(c, MaxIterations | PhaseLimit)),
        sign=-1 if objective.direction == MINIMISE else 1,
        min_delta=objective.min_delta,
    )
    measured = {"candidate": item, "base": item if standing.base is None or best is None else best}
    new: dict[str, list[Evaluation]] = {"base": [], "candidate": []}
    snapshot = None if files is None else files.current
    try:
        side = next(deciding)
        while True:
            if files is not None:
                await files.show(measured[side].files)
            path = f"confirm/{side}-{len(new[side]) + 1}"
            value = await loop_run.ctx.call(path, loop.evaluate, measured[side].output)
            new[side].append(one := metrics.scored(as_evaluation(value)))
            failed = item.number and side == "candidate" and one.passed is False
            side = deciding.send(None if failed else _sample(one, metrics.objective))
    except StopIteration as end:
        record = end.value
    finally:
        # Also after a failure: the iteration is recorded with its own files.
        if files is not None and (new["base"] or new["candidate"]):
            await files.show(snapshot)
    if record.get("exact"):
        loop_run.ctx.warn(
            f"measurements of {metrics.objective} do not differ, so one of each iteration is enough to compare",
            code=EXACT,
        )
    # The first evaluation of a base was not chosen for its value, so it counts.
    counted = [evaluation, *new["base"]] if standing.base is None else new["candidate"]
    scores = [one.score for one in counted if one.score is not None]
    return replace(
        evaluation,
        score=MEAN(scores) if scores and evaluation.score is not None else evaluation.score,
        metrics={
            name: MEAN([one.metrics[name] for one in counted if name in one.metrics] or [value])
            for name, value in evaluation.metrics.items()
        },
        details={**evaluation.details, "confirm": record},
    )


def _sample(evaluation: Evaluation, objective: str) -> Sample | None:
    """Return the value of the objective, of a data set those of its cases; None without one."""
    value, samples = evaluation.metrics.get(objective), evaluation.details.get("samples")
    if value is None or evaluation.undecided:
        return None
    cases = samples.get(objective) if isinstance(samples, Mapping) else None
    return cases if isinstance(cases, Mapping) and cases else value
