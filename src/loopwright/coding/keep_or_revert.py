"""`keep_or_revert_loop`: an agent changes files, and only changes that improve a metric stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ..conditions import Budget, Condition, MaxIterations, Timeout
from ..engine.context import Context
from ..engine.loop import Loop, any_of
from ..engine.loop_options import measures_only
from ..engine.metrics import Metric, metrics_of
from ..engine.step import EvaluatorLike, Step, StepLike
from ..errors import ConfigurationError, nearest
from ..records.codec import Json
from ..records.history import table_text
from ..tools.sandbox import SandboxMode
from .metric_task import METRIC_GOAL, metric_prompt
from .until import agent_step_of, feedback_before
from .workspace import Workspace

__all__ = ["keep_or_revert_loop"]

METRIC_ITERATIONS = 100
FAILURES = (
    5  # in a row: a change that breaks the program is a rejected idea, and the loop continues
)


@dataclass(frozen=True)
class _MetricTask:
    """The task of an agent, as its prompt states it."""

    goal: str
    limit: int
    name: str
    direction: str

    def prompt(self, _: Json, ctx: Context) -> str:
        """Return the prompt of the next iteration."""
        return metric_prompt(
            goal=self.goal,
            name=self.name,
            direction=self.direction,
            number=str(ctx.iteration),
            limit=self.limit,
            table=table_text(ctx.history),
            feedback=feedback_before(ctx),
        )


def keep_or_revert_loop(
    agent: Sequence[str] | StepLike[Any, Any],
    evaluate: EvaluatorLike[Any],
    metrics: Mapping[str, str | Metric],
    *,
    objective: str = "",
    goal: str = METRIC_GOAL,
    max_iterations: int = METRIC_ITERATIONS,
    usd: float | None = None,
    timeout: float | None = None,
    until: Condition | None = None,
    sandbox: SandboxMode = "none",
    workspace: Workspace | None = None,
    name: str = "keep_or_revert",
    **options: Any,
) -> Loop[Any, Any]:
    """Make a loop in which an agent changes files, and only changes that improve a metric stay.

    The files at the start are measured first. Each iteration continues from the last accepted one: the files
    of an iteration that is not better are put back, also when it fails. The branch of the result has one
    commit for each accepted iteration.

    Args:
        agent: The words of a command, which receives the prompt on standard input or as the word `{prompt}`;
            the words of a coding agent, such as `["codex"]`; or a step. The prompt of `agent(...)` can
            contain `{{ loop.table }}`, the iterations so far.
        evaluate: The evaluator that measures, such as `metric("val_loss", ["python", "train.py"])`.
        metrics: By name, `minimise`, `maximise` or a `Metric` with unit, `min_delta` and repeats.
        objective: The metric that decides. Default: the only one with a direction.
        goal: What the agent of a command is asked to do. Default: "Improve the metric."
        max_iterations: The most iterations. Default: 100.
        usd: The most US dollars. Default: no limit.
        timeout: The most active seconds. Default: no limit.
        until: More conditions, such as `MetricAtMost("val_loss", 0.9)`, of which any ends the loop.
        sandbox: The isolation of the agent: `auto`, `bubblewrap`, `own` or `none`, as in `agent`. Default: `none`.
        workspace: The folder in which the agent works. Default: a copy of the current one. Its `refine_from`
            and `commits` are set.
        name: The name of the loop. Default: "keep_or_revert".
        **options: More options of `Loop`, such as `on_iteration`, and `max_failures` (default here: 5).

    Returns:
        The loop. Its output is that of the agent in the last accepted iteration.

    Raises:
        ConfigurationError: For an invalid option, or metrics of which none orders the iterations.

    Example:
        >>> from loopwright import metric, run_sync
        >>> loop = keep_or_revert_loop(
        ...     ["sh", "-c", "echo x >> notes.txt"],
        ...     metric("bytes", "cat notes.txt | wc -c"),
        ...     {"bytes": "minimise"},
        ...     max_iterations=2,
        ...     workspace=Workspace(".", merge="none"),
        ... )
        >>> loop.workspace.refine_from, loop.limit
        ('accepted', 2)
    """
    declared = metrics_of(metrics, objective, None)
    if declared is None or not declared.objective:
        raise ConfigurationError(
            f"{name}: no metric has a direction, so no change is better; use metrics={{'val_loss': 'minimise'}}"
        )
    direction = declared.metrics[declared.objective].direction
    task = _MetricTask(goal, max_iterations, declared.objective, direction)
    guards: list[Condition | None] = [
        None if usd is None else Budget(usd=usd),
        None if timeout is None else Timeout(timeout),
    ]
    loop = Loop(
        agent_step_of(task, agent, {"sandbox": sandbox}),
        evaluate,
        until=any_of(until, MaxIterations(max_iterations)),
        guards=any_of(*guards),
        name=name,
        metrics=metrics,
        objective=objective,
        baseline=True,
        workspace=replace(workspace or Workspace(), refine_from="accepted", commits="iterations"),
        **{"on_failure": "continue", "max_failures": FAILURES, **options},
    )
    step = cast("Step[Any, Any]", loop.evaluate)
    # Of other evaluators, the names are known only when they run.
    if measures_only(step) and step.name != declared.objective:
        hint = nearest(step.name, declared.metrics)
        raise ConfigurationError(
            f"{name}: the evaluator measures {step.name!r}, and metrics has {declared.objective!r}; use one "
            f"name for both{hint}"
        )
    return loop
