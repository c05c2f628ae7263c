"""A task on the cases of a data set, and the evaluation of its outputs.

1. Several cases run at a time. Their order of ending has no effect on a score.
2. The cases stand in shards of 256 in the order of the file, at `cases/s0003/ID`, further repetitions at
   `cases/s0003/ID/repeat-2`. A shard whose cases have all ended is folded, so that a resume does not load it.
3. A case without a score is errored or undecided, and counts as neither 0 nor 1. Too many errors end the evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, cast

from ..datasets import Case, Dataset
from ..datasets.dataset import HELD_OUT
from ..datasets.results import ERRORED, FAILED, PASSED, UNDECIDED, Scores, worst_of
from ..engine.budgets import Account
from ..engine.composites import at_once_of, run_all
from ..engine.composites import retry as retrying
from ..engine.context import Context, Scope
from ..engine.folds import fold, folded
from ..engine.run_state import Run
from ..engine.step import (
    CompositeStep,
    FunctionStep,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
)
from ..errors import ConfigurationError, StepError
from ..journal import Entry
from ..memory.entries import entry
from ..records import (
    NOTHING,
    Evaluation,
    Failure,
    Reason,
    Result,
    Status,
    as_evaluation,
    case_path,
    case_segment,
    codec,
)
from ..records.codec import Json
from ..records.display import one_line, shortened
from .gates import Check, as_check, evaluator_of_case, gates

__all__ = [
    "CASES_FAILED",
    "LOOK",
    "OverCases",
    "cases_of",
    "equals_expected",
    "planned",
]

SHARD = 256  # cases
CASES_FAILED = "cases_failed"  # the kind of the error of an evaluation with too many errors
PASSING = 0.5  # the score from which a case without a verdict has passed
OUTCOME = "note.case/1"  # the fingerprint of the entry with the outcome of a case
_SHOWN = 300  # characters of an input, an output or feedback
_WORKERS = 1024  # the most cases at a time that a person may set


@dataclass(frozen=True)
class OverCases(CompositeStep[object, Json]):
    """Runs a task on each case of a data set, and evaluates each output.

    The input of the task is that of the case, or with `of_value` that of this step. `most` is the share of errors, from
    0 to 1, above which there is no score. `shown` are the IDs of the cases whose feedback may be read, or None for
    all; `show` is how many of the worst ones are kept. `used` names the splits, `sample` is how many cases are drawn
    (0: all), and `sink` receives the scores when the cases have ended.
    """

    noun: ClassVar[str] = "evaluation"
    name: str
    task: Step
    evaluate: Step
    dataset: Dataset
    at_once: int = 8
    repeat: int = 1
    most: float = 0.05
    show: int = 5
    of_value: bool = False
    shown: Collection[str] | None = None
    used: str = ""
    sample: int = 0
    sink: Callable[[Scores], None] | None = None

    supplies = ("case",)

    def parts(self) -> Iterable[Step]:
        return [self.task, self.evaluate]

    def changed(self, entries: Sequence[Entry]) -> str:
        """Return a sentence on the first case that is not as it was recorded, or ""."""
        recorded: dict[str, str] = {}
        for one in entries:
            # Other evaluators have cases too.
            steps, _, rest = one.fingerprint.partition(":")
            if one.kind == "folded" and steps == self.steps:
                recorded |= {case_segment(row[0]): row[4] for row in one.value["value"]["rows"]}
            elif one.path == f"{case_path(one.path)}/task" and steps == self.task.fingerprint:
                part = one.path.split("/cases/")[-1].split("/")[1]
                recorded[part] = rest.partition(" ")[0]
        # Those of a minibatch and held-out ones are on record too.
        whole = self.dataset.whole
        now = zip(whole.ids, whole.digests, strict=True)
        then = [(one, recorded.pop(case_segment(one), digest)) for one, digest in now]
        if not recorded:
            return whole.first_change(then)
        return f"{whole.name}: the case {next(iter(recorded))!r} is missing"

    @fingerprinted
    def fingerprint(self) -> str:
        """A digest of the data set, the steps and the number of repetitions."""
        # Without the others: a run may continue at another speed, or with more errors.
        which = digest_of(*self.dataset.ids)
        settings = f"{self.repeat} {self.of_value} {self.used} {self.sample}"
        return digest_of("cases", self.name, self.dataset.digest, which, settings, self.steps)

    @cached_property
    def steps(self) -> str:
        """A digest of the steps alone."""
        return digest_of("case", self.task.fingerprint, self.evaluate.fingerprint)

    async def run(self, value: Json, ctx: Context) -> Result:
        """Score the cases; the output is the summary of the scores."""
        plan = self
        if self.sample:
            plan = replace(self, dataset=self.dataset.sample(self.sample, ctx.random))
        looks = None
        if HELD_OUT in self.used.split("+"):
            looks = await ctx.call("look", LOOK, self.dataset.use(HELD_OUT).cases_digest)
        scores = await plan.scored(value, ctx)
        if self.sink is not None:
            self.sink(scores)
        output = scores.summary(self.used, self.show)
        if looks is not None:
            output["dataset"]["looks"] = looks
        detail = f"{scores.scored} of {scores.total} scored"
        if scores.errored:
            detail += f", {scores.errored} errored"
        if not self.failed(scores):
            return Result(Status.SATISFIED, Reason.COMPLETED, detail, output, name=self.name)
        failure = self.failure(scores, ctx.path)
        return Result(
            Status.FAILED, Reason.ERROR, failure.message, output, name=self.name, error=failure
        )

    @property
    def total(self) -> int:
        """How many runs of cases there are."""
        count = len(self.dataset)
        return min(self.sample or count, count) * self.repeat

    def failed(self, scores: Scores) -> bool:
        """Return whether there are more errors than allowed."""
        return scores.errored > self.most * scores.total + 1e-9

    def failure(self, scores: Scores, path: str) -> Failure:
        """Return the error of an evaluation with too many errors."""
        first = scores.errors[0]
        message = (
            f"{scores.errored} of {scores.total} cases errored, and at most {100 * self.most:g} % may; the first: "
            f"{first['place'] or first['id']}: {first['error']}"
        )
        return Failure("", CASES_FAILED, message, path, retryable=False)

    async def scored(self, value: Json, ctx: Context) -> Scores:
        """Return the scores of the cases; those that the journal has are not scored again.

        Raises:
            StepError: of kind `data_changed`, if the file was changed while it was read.
            Suspended: if a case waits for a person, after the other cases have ended.
        """
        scores = Scores(self.dataset, self.repeat)
        given = codec.digest(value) if self.of_value else ""
        units = self._units(scores, value, given, ctx)
        running, is_complete = 0, False

        def over() -> bool:
            return self.failed(scores)

        async def work() -> None:
            nonlocal running, is_complete
            running += 1
            try:
                for shard, case, place, number in units:
                    await shard.score(case, place, number)
                    if over() or running > (most() if callable(most) else most):
                        return
                is_complete = True
            finally:
                running -= 1

        jobs = [work] * min(scores.total, max(self.at_once, _WORKERS))
        with at_once_of(ctx, self.name, self.at_once) as most:
            await run_all(
                jobs,
                most,
                ready=lambda _: not is_complete,
                over=over,
                count=ctx.run.count,
            )
        return scores

    async def enough(self, value: Json, ctx: Context) -> Scores:
        """Return the scores of all cases, as `scored` does. Raises StepError with too many errors."""
        scores = await self.scored(value, ctx)
        if self.failed(scores):
            raise self.failure(scores, ctx.path).to_error()
        return scores

    def _units(
        self, scores: Scores, value: Json, given: str, ctx: Context
    ) -> Iterator[tuple[_Shard, Case, int, int]]:
        """Iterate over the runs of cases that the journal does not have in folded shards, with place and number."""
        for number, first in enumerate(range(0, len(self.dataset), SHARD)):
            part = self.dataset[first : first + SHARD]
            shard = _Shard(self, scores, number, part, value, given, ctx)
            if shard.restore():
                continue
            scores.begin(number, shard.rows)
            try:
                for place, case in enumerate(part, start=first):
                    yield from ((shard, case, place, n) for n in range(1, self.repeat + 1))
            except ConfigurationError as error:
                raise StepError(str(error), path=ctx.path, kind="data_changed") from error


class _Shard:
    """Up to 256 cases in the order of the file, until each of them has ended."""

    def __init__(
        self,
        plan: OverCases,
        scores: Scores,
        number: int,
        part: Dataset,
        value: Json,
        given: str,
        ctx: Context,
    ) -> None:
        self.plan, self.scores, self.number, self.part = plan, scores, number, part
        self.value, self.given = value, given
        self.ctx = _within(ctx, f"{ctx.path}/cases/s{number:04}")
        self.rows: dict[tuple[str, int], list[Json]] = {}
        self.metrics: dict[tuple[str, int], Mapping[str, float]] = {}
        self.worst: list[Json] = []
        self.errors: list[Json] = []

    @property
    def fingerprint(self) -> str:
        which = digest_of(*self.part.ids, *self.part.digests, self.given)
        return f"{self.plan.steps}:{which}"

    def restore(self) -> bool:
        """Take the rows of a folded shard; return whether it is one.

        Raises:
            ReplayMismatch: if a case or a step is not the recorded one.
        """
        recorded = folded(self.ctx, self.plan, self.fingerprint)
        if recorded is not None:
            self.scores.restore(self.number, recorded.value["value"])
        return recorded is not None

    async def score(self, case: Case, place: int, number: int) -> None:
        """Run the task on a case, evaluate its output, and keep the outcome; the last one folds the shard."""
        plan, run = self.plan, self.ctx.run
        path = f"{self.ctx.path}/{case_segment(case.id)}"
        ctx = _within(self.ctx, path if number == 1 else f"{path}/repeat-{number}")
        value, token = case.inputs, case.digest
        if plan.of_value:
            value, token = self.value, f"{case.digest} {self.given}"
        ctx.scope = scope = Scope(plan.name, case.inputs, self.ctx.scope, ctx.path)
        scope.work_on(case.for_task())
        output, evaluation, state = None, Evaluation(), ERRORED
        try:
            began = run.now()
            output = await ctx.call("task", plan.task, value, token)
            spent = ctx.account.settled
            usd = spent.usd if spent else 0.0
            scope.work_on(case, partial(_effort, run, f"{ctx.path}/task", run.now() - began, usd))
            evaluator = plan.evaluate
            if case.evaluators:
                evaluator = _with_own(evaluator, case)
            evaluation = as_evaluation(await ctx.call("evaluate", evaluator, output, token))
        except StepError as error:
            text = run.redact(str(error).removeprefix(f"{ctx.path}/"))
            error_row = {"id": case.id, "place": case.place, "error": shortened(text, _SHOWN)}
            self.scores.fail(error_row)
            self.errors.append(error_row)
        else:
            state = state_of(evaluation)
            self._note(ctx, output, evaluation)
        score = None
        if state in (PASSED, FAILED):
            score = evaluation.score
            if score is None:
                score = float(evaluation.passed is True)
            if evaluation.metrics:
                self.metrics[case.id, number] = evaluation.metrics
            is_shown = plan.shown is None or case.id in plan.shown
            if is_shown and (score < 1 or state == FAILED):
                texts = {"inputs": case.inputs, "output": output, "feedback": evaluation.feedback}
                row = {
                    "id": case.id, "score": score, "repeat": number, "place": place,
                    **{name: shortened(one_line(codec.text_of(item)), _SHOWN) for name, item in texts.items() if item},
                }  # fmt: skip
                self.worst = worst_of([*self.worst, row], plan.show)
        used = ctx.account.settled
        usage = [used.calls, used.input_tokens, used.output_tokens, used.usd] if used else 0
        self.rows[case.id, number] = [case.id, score, state, usage, case.digest]
        if len(self.rows) == len(self.part) * plan.repeat:
            self._complete()

    def _note(self, ctx: Context, output: Json, evaluation: Evaluation) -> None:
        """Record the output and the evaluation of a case whose steps have no entry of their own with them."""
        plan, run, path = self.plan, ctx.run, f"{ctx.path}/outcome"
        steps = (plan.task, plan.evaluate)
        if run.silent or plan.of_value or not any(isinstance(s, CompositeStep) for s in steps):
            return
        # A resume runs composite steps again over what they recorded.
        if run.replay is None or path not in run.replay.finished:
            kept = run.clean({"output": output, "evaluation": evaluation.to_json()})
            run.append(Entry("finished", path, run.now(), kept, OUTCOME))

    def _complete(self) -> None:
        plan = self.plan
        places = [(one, n) for one in self.part.ids for n in range(1, plan.repeat + 1)]
        kept: dict[str, Json] = {"rows": [self.rows[place] for place in places]}
        values: dict[str, dict[str, list[float]]] = {}  # of each metric, by case
        for place in places:
            for name, value in self.metrics.get(place, {}).items():
                values.setdefault(name, {}).setdefault(place[0], []).append(value)
        for name, cases in sorted(values.items()):
            every = [value for found in cases.values() for value in found]
            kept.setdefault("metrics", {})[name] = [math.fsum(every), len(every)]
            if plan.of_value:  # a confirmation compares outputs case by case
                means = {one: math.fsum(found) / len(found) for one, found in cases.items()}
                kept.setdefault("by_case", {})[name] = means
        if self.worst:
            kept["worst"] = self.worst
        if self.errors:
            kept["errors"] = self.errors[: max(1, plan.show)]
        if any(self.part.groups):  # a comparison reads them without the file
            named = zip(self.part.ids, self.part.groups, strict=True)
            kept["groups"] = {name: group for name, group in named if group}
        kept = self.ctx.run.clean(kept)
        fold(self.ctx, kept, self.fingerprint)
        self.scores.complete(self.number, kept)


def state_of(evaluation: Evaluation) -> str:
    """Return the state of a case with this evaluation."""
    passed, score = evaluation.passed, evaluation.score
    if evaluation.undecided or (passed is None and score is None and not evaluation.metrics):
        return UNDECIDED
    if passed is None:
        # A case with metrics alone has nothing that it could fail.
        passed = score is None or score >= PASSING
    return PASSED if passed else FAILED


def _within(ctx: Context, path: str) -> Context:
    """Return a context at a path with an account of its own."""
    spent = NOTHING if ctx.run.replay is None else ctx.run.replay.spent(path)
    return Context(ctx.run, path, ctx.gate, Account(path, ctx.account, None, spent), ctx.scope)


def _effort(run: Run, path: str, seconds: float, usd: float | None) -> tuple[float, float | None]:
    """Return the seconds and US dollars of a task, with the seconds that an earlier process recorded of it."""
    finished = run.replay.finished if run.replay is not None else {}
    # Of shards in progress only, because the journal does not load the others.
    own = [e for name, e in finished.items() if name == path or name.startswith(f"{path}/")]
    if own:
        seconds += max(e.at + e.seconds for e in own) - min(e.at for e in own)
    return seconds, usd


def _with_own(evaluator: Step, case: Case) -> Step:
    """Return an evaluator followed by those of a case.

    Raises:
        StepError: for one that a case cannot have.
    """
    try:
        return gates(evaluator, *map(evaluator_of_case, case.evaluators))
    except ConfigurationError as error:
        raise StepError(f"evaluators: {error}", kind="bad_evaluator", retryable=False) from error


def cases_of(dataset: Dataset | str | Path | Iterable[Case]) -> Dataset:
    """Return a data set: itself, that of a file, or that of cases."""
    if isinstance(dataset, Dataset):
        return dataset
    return Dataset.load(dataset) if isinstance(dataset, str | Path) else Dataset(dataset)


def planned(
    name: str,
    task: StepLike,
    dataset: Dataset,
    evaluators: Check | Sequence[Check],
    *,
    at_once: int = 8,
    repeat: int = 1,
    retry: int = 0,
    most_errors: float = 0.05,
    show: int = 5,
) -> OverCases:
    """Return the step that runs a task on cases. Raises ConfigurationError for an invalid option."""
    several = isinstance(evaluators, list | tuple)
    listed = cast("Sequence[Check]", evaluators if several else [evaluators])
    if not listed:
        raise ConfigurationError(f"{name}: evaluators: pass at least one")
    judge: Step
    if len(listed) > 1:
        judge = gates(*listed)
    elif isinstance(listed[0], Mapping):
        judge = as_check("", listed[0])
    else:
        judge = as_step(listed[0], name="evaluate", purpose="evaluate")
    made = as_step(task)
    if codec.integer(f"{name}: retry", retry, minimum=0):
        made, judge = (retrying(step, attempts=retry + 1) for step in (made, judge))
    return OverCases(
        name,
        made,
        judge,
        dataset,
        codec.integer(f"{name}: at_once", at_once, minimum=1),
        codec.integer(f"{name}: repeat", repeat, minimum=1),
        codec.number(f"{name}: most_errors", most_errors, minimum=0, maximum=1),
        codec.integer(f"{name}: show", show, minimum=0),
    )


def equals_expected(output: Json, ctx: Context) -> Evaluation:
    """Return whether an output is what the case of a data set expects; of texts, spaces at the ends do not count.

    Args:
        output: the output of a task.
        ctx: the context of an evaluator.

    Returns:
        An evaluation with a verdict.

    Raises:
        StepError: without a case, or for a case that expects nothing.

    Example:
        >>> from loopwright import Case, evaluate_sync
        >>> cases = [Case("4 + 4", "8"), Case("2 + 2", "5")]
        >>> evaluate_sync(lambda sum: str(eval(sum)), cases, equals_expected).counts["passed"]
        1
    """
    case = ctx.case
    if case is None:
        raise StepError("equals_expected: there is no case of a data set here", kind="no_case")
    expected = case.expected
    if expected is None:
        raise StepError(
            f"equals_expected: case {case.id} has no `expected`; add it, or use another evaluator",
            kind="no_expectation",
            retryable=False,
        )
    same = output == expected and type(output) is type(expected)
    if isinstance(output, str) and isinstance(expected, str):
        same = output.strip() == expected.strip()
    if same:
        return Evaluation(passed=True)
    told = f"expected {shortened(codec.text_of(expected), _SHOWN)}"
    if codec.text_of(output) == codec.text_of(expected):  # "18" and 18 look alike
        told = f"expected {codec.encode(expected)}, not {codec.encode(output)}"
    return Evaluation(passed=False, feedback=told)


async def _look(digest: str, ctx: Context) -> Json:
    """Count a look of this run at held-out cases; return how many there have been, or None without a journal."""
    memory = ctx.run.resources.get("memory")
    if memory is None or ctx.run.stubs is not None:
        return None
    space = f"held-out/{digest[:16]}"
    # The key makes it one look of a run, also after a resume.
    looked = entry(space, "note", "a look", at=ctx.run.clock.wall(), key=ctx.run_id, run=ctx.run_id)
    (number,) = await memory.append(looked)
    return sum(one.seq <= number for one in await memory.entries(space))


LOOK = FunctionStep(_look, name="look", fingerprint="note.look", inline=True)
