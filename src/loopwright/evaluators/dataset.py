"""A data set as the evaluator of a loop: minibatches first, the mean of its cases, and held-out cases at the end.

1. Held-out cases (`test`) reach no step, evaluator, template or feedback of the loop. After its end, the beginning and
   the result are scored once on them.
2. Feedback shows training cases only, because what an author reads is no longer a measure of the work.
3. Each scoring of held-out cases counts as a look, over all runs of a journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import ClassVar, Unpack

from ..datasets import Case, Dataset
from ..datasets.dataset import HELD_OUT
from ..datasets.results import PASSED, CaseOptions, Scores, groups_of, means_of, paired, score_of
from ..engine.context import Context, Scope
from ..engine.step import (
    CompositeStep,
    Step,
    StepLike,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError
from ..records import Criterion, Evaluation, Reason, Result, Status, codec
from ..records.codec import Json
from ..records.typed import Value
from .cases import LOOK, OverCases, cases_of, planned
from .gates import Check

__all__ = ["DatasetEvaluator", "Minibatch", "on_cases"]

SMALL_MINIBATCH = "small_minibatch"  # the code of a warning
SMALL = 8  # cases; the mean of fewer says little
MOST_CRITERIA = 1_000
_TEXTS = ("inputs", "output", "feedback")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Minibatch(Value):
    """Cases on which an output is compared with its parent before it is scored on others.

    Args:
        size: the number of cases.
        of: the split from which they are drawn. No case comes again before all others have come.
        then: the split on which an output is scored if its mean is not lower.

    Raises:
        ConfigurationError: for a size below 1, or a split that is held out.

    Example:
        >>> Minibatch(20)
        Minibatch(size=20, of='train', then='validation')
    """

    size: int
    of: str = "train"
    then: str = "validation"

    def __post_init__(self) -> None:
        codec.integer("minibatch: size", self.size, minimum=1)
        _refuse_held_out("minibatch: of", (self.of,))
        _refuse_held_out("minibatch: then", (self.then,))


def _refuse_held_out(what: str, names: Iterable[str]) -> None:
    if HELD_OUT in names:
        raise ConfigurationError(
            f"{what}: {HELD_OUT!r} is held out, so the loop never sees it; use train or validation"
        )


@dataclass(frozen=True)
class HeldOut(CompositeStep[int, Json]):
    """Scores the beginning of a loop and the iteration of a number on held-out cases."""

    noun: ClassVar[str] = "evaluation"
    name: str
    cases: OverCases

    def parts(self) -> Iterable[Step]:
        return [self.cases]

    @fingerprinted
    def fingerprint(self) -> str:
        return digest_of("held out", self.cases.fingerprint)

    async def run(self, value: int, ctx: Context) -> Result:
        """Score both; the output has the figures of the result and the paired difference."""
        scope = ctx.scope
        assert scope is not None
        history, digest = scope.history, self.cases.dataset.digest
        chosen = next(item for item in history if item.number == value)
        first = next((item for item in history if item.output is not None), None)
        starts: tuple[Json, Mapping[str, Json] | None] = (scope.initial, None)
        if scope.baseline is None and first is not None:
            starts = (first.output, first.files)
        looks = await ctx.call("look", LOOK, self.cases.dataset.cases_digest)
        outcomes: dict[str, Scores] = {}
        parts = {"beginning": starts, "result": (chosen.output, chosen.files)}
        for part, (output, files) in parts.items():
            if scope.files is not None:
                await scope.files.show(files)
            outcomes[part] = await self.cases.enough(output, ctx.child(ctx.below(part)))
        data = self.cases.dataset
        rows = {part: [*scores.rows()] for part, scores in outcomes.items()}
        figures = {part: score_of(rows[part], data, self.cases.repeat) for part in rows}
        score = (figures["result"] or {}).get("mean")
        gap = None if score is None or chosen.score is None else round(chosen.score - score, 6)
        output = {
            "passing": sum(row[2] == PASSED for row in rows["result"]),
            "total": len(rows["result"]),
            "score": score,
            "visible": chosen.score,
            "gap": gap,
            **figures,
            "difference": paired(rows["beginning"], rows["result"], groups_of(data)),
            "dataset": {"name": data.name, "digest": digest, "looks": looks},
        }
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", output, name=self.name)


@dataclass(frozen=True)
class DatasetEvaluator(CompositeStep[object, Evaluation]):
    """Evaluates an output by the cases of a data set. See `on_cases`."""

    noun: ClassVar[str] = "evaluator"
    has_cases: ClassVar[bool] = True
    name: str
    cases: OverCases
    minibatch: Minibatch | None = None
    drawn: OverCases | None = None  # the cases from which minibatches are drawn
    held_out: HeldOut | None = None

    def parts(self) -> Iterable[Step]:
        return [self.cases]

    def conclusions(self) -> Iterable[Step]:
        return () if self.held_out is None else [self.held_out]

    @fingerprinted
    def fingerprint(self) -> str:
        held_out = "" if self.held_out is None else self.held_out.fingerprint
        return digest_of("on cases", self.cases.fingerprint, repr(self.minibatch), held_out)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Evaluate an output: by a minibatch, if there is one, and then by all cases."""
        around = None if ctx.scope is None else ctx.scope.iteration_scope
        iteration = "" if around is None else f"{around.path}/{around.number}/"
        if not iteration or not ctx.path.startswith(
            (f"{iteration}evaluate", f"{iteration}candidate-")
        ):
            around = None
        # The input has lessons too. A new measurement, or a new judgement at the end, is one of all cases.
        whole = self.drawn is None or not (around or "/0/evaluate" in ctx.path)
        evaluation = None if whole else await self._compared(value, ctx, around)
        if evaluation is None or evaluation.passed is not False:
            lessons = "" if evaluation is None else evaluation.feedback
            scores = await self.cases.enough(value, ctx)
            evaluation = self._evaluation(self.cases, scores, lessons)
        return Result(Status.SATISFIED, Reason.COMPLETED, "scored", evaluation, name=self.name)

    async def _compared(self, value: Json, ctx: Context, around: Scope | None) -> Evaluation:
        """Evaluate an output by the minibatch of its iteration; it has not passed if its parent has a higher mean."""
        assert self.minibatch is not None
        assert self.drawn is not None
        number = 1 if around is None else around.number
        # One sequence for the loop, so that the iterations go through the cases in epochs.
        if self.minibatch.size < SMALL:
            ctx.warn(
                f"the minibatch has {self.minibatch.size} cases, and the mean of fewer than {SMALL} says little",
                code=SMALL_MINIBATCH,
            )
        seed = f"{ctx.run.log.info.seed} {'' if around is None else around.path} {self.name}"
        batches = self.drawn.dataset.minibatches(self.minibatch.size, Random(seed))
        plan = replace(self.drawn, dataset=next(islice(batches, number - 1, None)))
        scores = await plan.enough(value, ctx.child(ctx.below("minibatch")))
        evaluation = self._evaluation(plan, scores, "")
        parent = None if around is None else around.continued
        if parent is None or parent.output is None:
            return replace(evaluation, passed=None)
        before = await plan.enough(parent.output, ctx.child(ctx.below("minibatch-parent")))
        compared = paired([*before.rows()], [*scores.rows()])
        difference = compared["difference"]
        if difference is None or difference >= -1e-9:
            return replace(evaluation, passed=None)
        lead = (
            f"the mean of {compared['paired']} cases of the minibatch is {-difference:.3f} lower than that of the "
            "output before, so it was not scored further"
        )
        details = {self.name: {**evaluation.details[self.name], "minibatch": compared}}
        return replace(
            evaluation,
            score=None,
            passed=False,
            feedback=f"{lead}\n{evaluation.feedback}",
            details=details,
        )

    def _evaluation(self, plan: OverCases, scores: Scores, lessons: str) -> Evaluation:
        summary = scores.summary(plan.used, plan.show)
        rows, counts = [*scores.rows()], summary["counts"]
        gaps = {row["id"]: row.get("feedback", "") for row in summary["worst"]}
        # Of very many cases, those that did not pass.
        shown = (
            sorted(rows, key=lambda row: row[2] == PASSED) if len(rows) > MOST_CRITERIA else rows
        )
        score = summary["score"]
        return Evaluation(
            None if score is None else min(1.0, max(0.0, score["mean"])),
            undecided=score is None,
            # Without a verdict unless all have passed: a case that failed refuses nothing, the mean counts.
            passed=counts[PASSED] == scores.total or None,
            feedback="\n".join(
                part for part in (_counted(summary), lessons or _listed(summary["worst"])) if part
            ),
            criteria=tuple(
                Criterion(row[0], row[2] == PASSED, gaps.get(row[0], ""))
                for row in shown[:MOST_CRITERIA]
            ),
            metrics=summary["metrics"],
            # A confirmation and a choice of parents compare outputs case by case.
            details={
                self.name: summary,
                "samples": {
                    **scores.by_case(),
                    "score": {one: mean for (one, _), mean in means_of(rows).items()},
                },
            },
        )


def _counted(summary: Mapping[str, Json]) -> str:
    score, counts = summary["score"], summary["counts"]
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    data = summary["dataset"]
    lead = f"{data['name']} ({data['use']}): " if data["use"] else f"{data['name']}: "
    return lead + (f"{score['mean']:.3f}; " if score is not None else "") + ", ".join(parts)


def _listed(worst: Sequence[Mapping[str, Json]]) -> str:
    lines = []
    for row in worst:
        texts = [f"{name}: {row[name]}" for name in _TEXTS if row.get(name)]
        lines.append(f"- {row['id']} {row['score']:.2f} {' | '.join(texts)}".rstrip())
    return "\n".join(["The worst cases:", *lines]) if lines else ""


def on_cases(
    run: StepLike,
    dataset: Dataset | str | Path | Iterable[Case],
    evaluators: Check | Sequence[Check],
    *,
    use: Sequence[str] = (),
    minibatch: Minibatch | int | None = None,
    name: str = "dataset",
    **options: Unpack[CaseOptions],
) -> Step[object, Evaluation]:
    """Make an evaluator of a loop from a data set: the score of an output is the mean score of the cases.

    If the data set has a split `test`, it is held out: after the end of the loop, its input (with `baseline`, else the
    output of its first iteration) and its result are scored once on these cases; see `Result.held_out`.

    Args:
        run: uses an output of the loop on a case: a function `f(output, ctx)`, where `ctx.case` is the case, or
            any step. It does not see what is expected.
        dataset: a data set, the path of a file, or cases.
        evaluators: what judges an outcome of `run`, with `ctx.case.expected`: one evaluator, or several as gates.
        use: the splits that score an output. Default: all that is not held out.
        minibatch: a `Minibatch`, or its size: cases on which an output must not be worse than the one before.
            Default: none.
        name: its name in paths. Default: "dataset".
        options: those of `evaluate`: `at_once`, `repeat`, `retry`, `most_errors` and `show`, the number of training
            cases in the feedback.

    Returns:
        An evaluator. Its criteria are the cases, its metrics the means of their metrics.

    Raises:
        ConfigurationError: for an invalid option, or a data set that cannot be read.

    Example:
        >>> from loopwright import Case, Context, Loop, run_sync
        >>> def answer(factor: int, ctx: Context) -> int:
        ...     return factor * ctx.case.inputs
        >>> def is_right(answer: int, ctx: Context) -> bool:
        ...     return answer == ctx.case.expected
        >>> cases = [Case(1, 3), Case(2, 6)]
        >>> loop = Loop(lambda factor: factor + 1, on_cases(answer, cases, is_right), lambda last: last.output, max_iterations=5)
        >>> result = run_sync(loop, 1)
        >>> result.output, result.best.score
        (3, 1.0)
    """
    data = cases_of(dataset)
    _refuse_held_out(f"{name}: use", use)
    if isinstance(minibatch, int):
        minibatch = Minibatch(minibatch)
    splits = data.splits
    if minibatch is not None and use:
        raise ConfigurationError(f"{name}: use: with a minibatch, its `then` names the split")
    used = (minibatch.then,) if minibatch is not None else tuple(use)
    plan = planned(name, run, data.use(*used), evaluators, **options)
    # Without splits, an author may see every case.
    shown = frozenset(data.use("train").ids if "train" in splits else ()) if splits else None
    names = used or tuple(split for split in splits if split != HELD_OUT)
    plan = replace(plan, of_value=True, shown=shown, used="+".join(names))
    drawn = None
    if minibatch is not None:
        drawn = replace(plan, dataset=data.use(minibatch.of), used=minibatch.of)
    held_out = None
    if HELD_OUT in splits:
        hidden = replace(plan, dataset=data.use(HELD_OUT), used=HELD_OUT, show=0)
        held_out = HeldOut(name, hidden)
    return DatasetEvaluator(name, plan, minibatch, drawn, held_out)
