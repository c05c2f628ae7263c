"""The evaluation of a task on a data set as a run of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ..datasets import Case, Dataset
from ..datasets.results import (
    CaseOptions,
    EvalResult,
    EvaluateOptions,
    Gate,
    Scores,
    groups_of,
    recorded_rows,
)
from ..engine.functions import wait_shortly
from ..engine.run import run
from ..engine.run_record import RunOptions
from ..engine.step import StepLike
from ..errors import ConfigurationError
from ..journal import Journal
from ..journal.open import using
from ..records import codec
from .cases import OverCases, cases_of, planned
from .gates import Check

__all__ = ["evaluate", "evaluate_sync", "recorded_evaluation"]


def evaluation(
    name: str,
    task: StepLike,
    dataset: Dataset | str | Path | Iterable[Case],
    evaluators: Check | Sequence[Check],
    *,
    use: Sequence[str] = (),
    sample: int = 0,
    **options: Unpack[CaseOptions],
) -> OverCases:
    """Return the step that evaluates a task on a data set; see `evaluate`."""
    data = cases_of(dataset)
    part = data.use(*use)
    names = use or tuple(part.splits)
    codec.integer(f"{name}: sample", sample, minimum=0)
    made = planned(name, task, part, evaluators, **options)
    return replace(made, used="+".join(names), sample=sample)


async def evaluate(
    task: StepLike,
    dataset: Dataset | str | Path | Iterable[Case],
    evaluators: Check | Sequence[Check],
    *,
    name: str = "evaluation",
    use: Sequence[str] = (),
    sample: int = 0,
    at_once: int = 8,
    repeat: int = 1,
    retry: int = 0,
    most_errors: float = 0.05,
    show: int = 5,
    gate: Gate | None = None,
    baseline: EvalResult | None = None,
    **options: Unpack[RunOptions],
) -> EvalResult:
    """Run a task on the cases of a data set, and evaluate its outputs.

    With the journal and the ID of an evaluation that was interrupted it goes on, and scores no case twice.

    Args:
        task: a function `f(inputs)`, or `f(inputs, ctx)` where `ctx.case` is the case, or any step. It does not see
            what is expected.
        dataset: a data set, the path of a file, or cases.
        evaluators: what judges an output, with `ctx.case.expected`: one evaluator, or several as gates. A score of
            at least 0.5 without a verdict counts as passed.
        name: the name of the run.
        use: the splits whose cases are run. Default: all that is not held out (`test`).
        sample: how many of these cases are drawn, by the seed of the run. Default: 0, all.
        at_once: the most cases at a time.
        repeat: how often each case is run.
        retry: the most further attempts of a task or an evaluator that fails.
        most_errors: the share of errors, from 0 to 1, above which there is no score.
        show: how many of the worst cases are kept with their feedback.
        gate: what the result must reach. Default: nothing.
        baseline: an earlier result to compare with. Default: none.
        options: those of `run`, such as `journal` and `run_id`.

    Returns:
        The scores with their interval, the worst cases, and the verdict of the gate.

    Raises:
        ConfigurationError: for an invalid option, or a data set that cannot be read.
        ReplayMismatch: if a case or the task is not the recorded one; names the first changed case.

    Example:
        >>> import asyncio
        >>> from loopwright import Case, Context, evaluate
        >>> def is_right(answer: int, ctx: Context) -> bool:
        ...     return answer == ctx.case.expected
        >>> cases = [Case(n, n * n if n < 9 else 0) for n in range(10)]
        >>> result = asyncio.run(evaluate(lambda n: n * n, cases, is_right))
        >>> result.mean, result.counts["failed"]
        (0.9, 1)
    """
    step = evaluation(
        name, task, dataset, evaluators, use=use, sample=sample,
        at_once=at_once, repeat=repeat, retry=retry, most_errors=most_errors, show=show,
    )  # fmt: skip
    if gate is not None and gate.max_drop is not None and baseline is None:
        raise ConfigurationError("gate: max_drop needs a baseline to compare with")
    made: list[Scores] = []
    ended = await run(replace(step, sink=made.append), None, **options)
    rows = [*made[-1].rows()] if made else []
    journal = options.get("journal")
    if not made and journal is not None:  # it had ended before
        async with using(journal) as store:
            rows = recorded_rows(await store.entries(ended.run_id))
    result = EvalResult.of(ended, rows)
    if baseline is not None:
        result = result.compared(baseline, groups_of(step.dataset))
    return result if gate is None else result.gated(gate)


def evaluate_sync(
    task: StepLike,
    dataset: Dataset | str | Path | Iterable[Case],
    evaluators: Check | Sequence[Check],
    **options: Unpack[EvaluateOptions],
) -> EvalResult:
    """Evaluate a task on a data set from synchronous code; see `evaluate`.

    Args:
        task: the task.
        dataset: a data set, the path of a file, or cases.
        evaluators: what judges an output.
        options: the options of `evaluate`.

    Returns:
        The result, as `evaluate` returns it.

    Raises:
        ConfigurationError, ReplayMismatch: as `evaluate` does.

    Example:
        >>> from loopwright import Case, evaluate_sync
        >>> evaluate_sync(str.upper, [Case("a"), Case("b")], lambda text: text.isupper()).counts["passed"]
        2
    """
    return wait_shortly(lambda: evaluate(task, dataset, evaluators, **options))


async def recorded_evaluation(journal: Journal | str, run_id: str) -> EvalResult:
    """Return the result of a recorded evaluation, such as a baseline.

    Args:
        journal: the journal of the run, or its URL.
        run_id: the run, or a unique prefix of its ID.

    Returns:
        The result, without a comparison and a gate.

    Raises:
        RunNotFound: if there is no such run.
        ConfigurationError: if the run is not an evaluation.

    Example:
        >>> import asyncio
        >>> from loopwright import Case, MemoryJournal, evaluate_sync
        >>> journal = MemoryJournal()
        >>> _ = evaluate_sync(str.upper, [Case("a")], str.isupper, journal=journal, run_id="r")
        >>> asyncio.run(recorded_evaluation(journal, "r")).counts["passed"]
        1
    """
    async with using(journal) as store:
        result = await store.result(run_id)
        entries = await store.entries(result.run_id)
    rows = recorded_rows(entries)
    if not rows and not (isinstance(result.output, dict) and "counts" in result.output):
        raise ConfigurationError(f"{result.run_id}: it is not an evaluation of a data set")
    return EvalResult.of(result, rows)
