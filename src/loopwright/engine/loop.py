"""The declaration of a loop and its decisions after each iteration; `loop_run` runs it.

Rules:

1. Each iteration is one record, failed or not. The record is committed before the decision.
2. Each output is evaluated, and adapt is the first step of the next iteration: n iterations adapt n-1
   times.
3. Conditions are checked after each record. Limits of time and cost are also checked before each effect.
4. A loop that reaches a limit has a result, with the best output, the history and the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Unpack, cast, overload

from ..conditions import (
    AllCriteriaMet,
    AnyOf,
    Budget,
    Condition,
    Judged,
    MaxIterations,
    Passed,
    PhaseLimit,
    TreeReading,
    check_safely,
    from_json,
    has_goal,
    named,
    prefer,
    questions_in,
    tag_of,
    tightest,
    time_limits,
    uses_past,
    with_passed,
)
from ..errors import (
    BROKEN_EVALUATOR,
    ConfigurationError,
    LoopwrightWarning,
)
from ..records import Evaluation, History, Iteration, Reason, Result, Status, Stop, codec
from ..records.codec import Json
from ..records.display import table_html
from ..records.excerpts import shortened
from ..records.typed import ValueType
from .budget import CANNOT_BIND, cannot_bind
from .composites import retry
from .context import Context
from .loop_approval import MOMENTS
from .loop_declaration import LoopDeclaration
from .loop_exploration import check_exploration
from .loop_limits import LoopLimits, check_conditions, with_limits
from .loop_options import check_options, one_of
from .loop_run import LoopRun
from .loop_stalls import OnStall
from .loop_verdicts import (
    FEEDBACK_SHOWN,
    NO_CHECK,
    Impossible,
    Undecided,
    has_check,
    tampering_stop,
    without_judge,
)
from .objectives import LoopMetrics, Metric, MetricScore, metrics_of
from .outcomes import acceptable
from .repeated import Repeated
from .state import StateSource
from .step import (
    AsyncFunction,
    CompositeStep,
    EvaluatorLike,
    FunctionStep,
    In,
    Leaf,
    Out,
    Step,
    StepLike,
    as_step,
    digest_of,
    fingerprinted,
    source_digest,
)
from .workspace_loop import WorkspaceLoopRun

__all__ = [
    "DEFAULT_LIMIT",
    "NO_GOAL",
    "NO_GOAL_SENTENCE",
    "Loop",
    "any_of",
    "loop_of_rules",
    "one_of",
]

DEFAULT_LIMIT = 10  # iterations of a loop without a limit, so that no loop is endless
MAX_DEPTH = 8  # loops within loops: iterations multiply with each level
FAILURES_IN_A_ROW = 3
# The options that decide when a loop ends, and with which output.
_RULES = (
    "until", "guards", "on_failure", "keep", "min_iterations", "max_failures", "metrics", "objective",
    "on_stall", "impossible", "undecided", "explore",
)  # fmt: skip
LIMIT_UNREACHABLE = "limit_unreachable"
NOT_APPLICABLE = "condition_not_applicable"
NO_GOAL = "no_goal"  # the code of the warning, and its sentence
NO_GOAL_SENTENCE = (
    "its evaluator gives scores only, and no condition says which score is enough, so it cannot be "
    "satisfied; add a score_at_least"
)

PASSED_UNREAD = "passed_unread"
# A function without `return` is the usual cause.
EMPTY_EVALUATIONS = (
    "its evaluator returned neither a score nor a verdict, so it cannot be satisfied; return a score from 0 to 1, "
    "True or False, or an Evaluation"
)


if TYPE_CHECKING:

    class LoopOptions(LoopLimits, Generic[In, Out], total=False):
        """The keyword options of `Loop`, which explains them."""

        on_failure: str
        max_retries: int
        retry_delay: float
        keep: str
        min_iterations: int
        required: bool
        max_failures: int | None
        accept: Sequence[str]
        rejudge: int
        baseline: bool
        on_stall: OnStall | None
        metrics: Mapping[str, str | Metric] | None
        objective: str
        score: MetricScore | Mapping[str, Json] | None
        impossible: Impossible
        undecided: Undecided
        explore: float
        approve: str | Sequence[str]
        workspace: StateSource | None
        on_iteration: Callable[[Iteration[In, Out]], object] | None
        on_terminate: Callable[[Result[Out]], object] | None


@dataclass(frozen=True)
class Loop(CompositeStep[In, Out]):
    """A loop: execute, evaluate and adapt, until a condition stops it.

    Args:
        execute: makes an output from an input. A function `f(input)` or `f(input, ctx)`, or any step.
        evaluate: judges an output. Returns a score from 0 to 1, True or False, or an Evaluation.
            Default: no evaluation.
        adapt: makes the next input from the last Iteration, failed or not. Default: the same input.
        until: conditions, of which any stops the loop, checked after each iteration. Default: the
            evaluation passes, if there is one. Without a limit, 10 iterations are the most.
        guards: conditions that are also checked before each effect inside the loop.
        name: its name in paths. Default: the name of `execute`.
        on_failure: `halt` stops the loop at the first error. `continue` records the error and adapts.
            `retry` tries the failed step again. An evaluator that cannot judge any output, such as
            tests without pytest, always stops the loop as `evaluator_unusable`.
        max_retries: the most further attempts of a step under `retry`.
        retry_delay: the longest wait before the first further attempt, in seconds; it doubles each time.
        keep: the output of an unsatisfied loop: the `best` one by score, or the `last` one.
        min_iterations: the iterations before a condition other than a limit may stop the loop.
        required: whether the workflow around it ends if it is not satisfied.
        max_failures: under `continue`, the failures in a row that stop the loop; None for no such limit.
        accept: those of the statuses `failed`, `exhausted` and `impossible` that do not count for the
            workflow around it.
        baseline: whether the input is evaluated before the first iteration. If it passes, the loop is
            satisfied without an iteration; templates have its feedback as `loop.feedback`.
        on_stall: what happens after iterations without progress, an `OnStall`. Default: nothing.
        impossible: when evaluations that call the task impossible end the loop, an `Impossible`. Default: two
            in a row, from the third iteration on.
        undecided: what happens after evaluations in a row that could not decide, an `Undecided`. Default:
            the second one in a row ends the loop as `evaluator_unusable`.
        explore: the share of runs, from 0 to 1, that continue to the limits after their normal end; the run
            ID decides. Status, reason and output are those of the normal end. Replay uses the explored
            iterations. Default: 0.
        rejudge: how often the final output is evaluated again. The mean is the result's
            `reported_score`; the score by which the output was chosen is the highest of several.
        approve: when a person is asked whether to continue: after each `iteration`, at the `limit`, or
            both. The run is suspended until there is an answer.
        metrics: how the loop orders and shows metrics of its evaluations, by name: `minimise`, `maximise`
            or a `Metric`. Default: they are recorded only.
        objective: the metric that orders the iterations: the best one, `patience`, acceptance. Default: the
            only metric with a direction, else the score.
        score: a `MetricScore`: the score that a metric makes. Default: a metric makes no score.
        min_score: the score that satisfies the loop, as `ScoreAtLeast`. This and the next six are joined
            with `until`, which must not name the same limit. Default of each: none.
        max_iterations: the most iterations, as `MaxIterations`.
        patience: the iterations in a row without a better score that stop the loop, as `NoImprovement`.
        max_calls: the most model calls, as `Budget`.
        max_total_tokens: the most input and output tokens together, as `Budget`.
        max_usd: the most US dollars, as `Budget`.
        timeout: the most active seconds, as `Timeout`.
        workspace: a `Workspace`: the folder in which its commands run, captured after each iteration and
            put back to the best one at the end. Default: that of the loop or workflow around it.
        on_iteration: called with each Iteration once it is durable. Its failure is a warning.
        on_terminate: called once with the Result, however the loop ends.

    Returns:
        A step. Its output is that of the iteration that satisfied it, else the one that `keep` names.

    Raises:
        ConfigurationError: for a contradictory or invalid option.

    Example:
        >>> from loopwright import Loop, MaxIterations, ScoreAtLeast, run_sync
        >>> loop = Loop(
        ...     lambda number: number * 2,
        ...     evaluate=lambda output: min(output / 10, 1.0),
        ...     adapt=lambda last: last.output,
        ...     until=ScoreAtLeast(0.8) | MaxIterations(5),
        ... )
        >>> result = run_sync(loop, 1)
        >>> result.output, result.reason.value, result.iterations
        (8, 'condition_met', 3)
    """

    keeps_types: ClassVar[bool] = True
    noun: ClassVar[str] = "loop"
    execute: StepLike[In, Out]
    evaluate: EvaluatorLike[Out] | None = None
    adapt: StepLike[Iteration[In, Out], In] | None = None
    until: Condition | None = None
    guards: Condition | None = None
    name: str = ""
    on_failure: str = field(default="halt", kw_only=True)
    max_retries: int = field(default=2, kw_only=True)
    retry_delay: float = field(default=0.5, kw_only=True)
    keep: str = field(default="best", kw_only=True)
    min_iterations: int = field(default=1, kw_only=True)
    required: bool = field(default=False, kw_only=True)
    max_failures: int | None = field(default=FAILURES_IN_A_ROW, kw_only=True)
    accept: Sequence[str] = field(default=(), kw_only=True)  # type: ignore[assignment]
    rejudge: int = field(default=0, kw_only=True)
    baseline: bool = field(default=False, kw_only=True)
    on_stall: OnStall | None = field(default=None, kw_only=True)
    metrics: Mapping[str, str | Metric] | None = field(default=None, kw_only=True)
    objective: str = field(default="", kw_only=True)
    score: MetricScore | Mapping[str, Json] | None = field(default=None, kw_only=True)
    impossible: Impossible = field(default=Impossible(), kw_only=True)
    undecided: Undecided = field(default=Undecided(), kw_only=True)
    explore: float = field(default=0.0, kw_only=True)
    approve: str | Sequence[str] = field(default=(), kw_only=True)
    min_score: InitVar[float | None] = field(default=None, kw_only=True)
    max_iterations: InitVar[int | None] = field(default=None, kw_only=True)
    patience: InitVar[int | None] = field(default=None, kw_only=True)
    max_calls: InitVar[int | None] = field(default=None, kw_only=True)
    max_total_tokens: InitVar[int | None] = field(default=None, kw_only=True)
    max_usd: InitVar[float | None] = field(default=None, kw_only=True)
    timeout: InitVar[float | None] = field(default=None, kw_only=True)
    workspace: StateSource | None = field(default=None, kw_only=True)
    on_iteration: Callable[[Iteration[In, Out]], object] | None = field(default=None, kw_only=True)
    on_terminate: Callable[[Result[Out]], object] | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self,
            execute: AsyncFunction[In, Out],
            evaluate: EvaluatorLike[Out] | None = ...,
            adapt: StepLike[Iteration[In, Out], In] | None = ...,
            until: Condition | None = ...,
            guards: Condition | None = ...,
            name: str = ...,
            **options: Unpack[LoopOptions[In, Out]],
        ) -> None: ...
        @overload
        def __init__(
            self,
            execute: StepLike[In, Out],
            evaluate: EvaluatorLike[Out] | None = ...,
            adapt: StepLike[Iteration[In, Out], In] | None = ...,
            until: Condition | None = ...,
            guards: Condition | None = ...,
            name: str = ...,
            **options: Unpack[LoopOptions[In, Out]],
        ) -> None: ...
        def __init__(self, *arguments: object, **options: object) -> None: ...

    def __post_init__(
        self,
        min_score: float | None,
        max_iterations: int | None,
        patience: int | None,
        max_calls: int | None,
        max_total_tokens: int | None,
        max_usd: float | None,
        timeout: float | None,
    ) -> None:
        # The loop is frozen; these fields are completed once, here.
        put = functools.partial(object.__setattr__, self)
        limits = LoopLimits(
            min_score=min_score,
            max_iterations=max_iterations,
            patience=patience,
            max_calls=max_calls,
            max_total_tokens=max_total_tokens,
            max_usd=max_usd,
            timeout=timeout,
        )
        check_options(vars(self))
        put("measured", metrics_of(self.metrics, self.objective, self.score))
        put("until", with_limits(self.until, self.guards, limits))
        put("sentences", self._sentences())
        stages = ("execute", "evaluate", "adapt")
        present = [name for name in stages if name == "execute" or getattr(self, name) is not None]
        for name in present:
            put(name, self._stage(name))
        put("_parts", (*(getattr(self, name) for name in present), *self.sentences.values()))
        put("name", self.name or as_step(self.execute).name)
        if "/" in self.name:
            raise ConfigurationError(f"loop: name: {self.name!r} has a slash; it is part of paths")
        if self.depth > MAX_DEPTH:
            raise ConfigurationError(
                f"loop: {self.name}: loops are nested {self.depth} deep; the limit is {MAX_DEPTH}"
            )
        if self.sentences and self.evaluate is None and self.undecided.then == "accept_check":
            raise ConfigurationError(NO_CHECK, option="undecided")
        put("members", tuple(self._conditions()))
        check_conditions(self.name, self.members, self.measured, cast("Step | None", self.evaluate))
        put("accept", acceptable(f"loop {self.name}", self.accept, required=self.required))
        self._warn_of_no_goal()
        for text in self._unreachable():
            warnings.warn(LoopwrightWarning(text, code=LIMIT_UNREACHABLE), stacklevel=4)
        if self.unbound:
            warnings.warn(LoopwrightWarning(self.unbound, code=CANNOT_BIND), stacklevel=4)
        put("approve", (self.approve,) if isinstance(self.approve, str) else tuple(self.approve))
        for moment in self.approve:
            one_of("loop: approve", moment, MOMENTS)
        if self.explore:
            check_exploration(cast("LoopDeclaration", self))

    def _stage(self, name: str) -> Step:
        """Return a stage as a step, with what the loop adds to it."""
        function = getattr(self, name)
        if name == "evaluate":
            step = as_step(function, purpose="evaluate")
            # Without a judge of its own, the evaluator can decide in the place of a sentence.
            if self.undecided.then == "accept_check" and not (self.sentences and has_check(step)):
                step = without_judge(step, self.undecided)
            if self.measured is not None and self.measured.repeats:
                step = Repeated(step, self.measured.repeats)
        else:
            step = as_step(function)
        # The output of adapt is the input of execute, so it has that type.
        if name == "adapt" and isinstance(step, FunctionStep):
            step = step.making_input_of(as_step(self.execute))
        return self._retried(step)

    def _sentences(self) -> Mapping[str, Step]:
        """Return the evaluators that answer the sentences of `until`, in their order.

        A single sentence of a loop without an evaluator becomes its evaluator.
        """
        if any(True for _ in questions_in(self.guards)):
            raise ConfigurationError(
                "loop: guards: a sentence is asked after an iteration, and guards are checked before each step; "
                "move it to until"
            )
        asked: dict[str, Judged] = {}
        for question in questions_in(self.until):
            if asked.setdefault(question.sentence, question) != question:
                raise ConfigurationError(
                    f"loop: until: {question.sentence!r} has two models; name one model for a sentence"
                )
        judges = {
            # An adapter makes the sentence itself a judge.
            sentence: as_step(
                cast("Step", question if question.judge is None else question.judge),
                purpose="evaluate",
            )
            for sentence, question in asked.items()
        }
        if len(judges) == 1 and self.evaluate is None:
            assert self.until is not None
            object.__setattr__(self, "evaluate", next(iter(judges.values())))
            object.__setattr__(self, "until", with_passed(self.until))
            return {}
        # The score of a judge would not be read, so none is asked for.
        return {
            sentence: self._retried(getattr(step, "verdict_only", step))
            for sentence, step in judges.items()
        }

    def _retried(self, step: Step) -> Step:
        if self.on_failure != "retry":
            return step
        return retry(step, attempts=self.max_retries + 1, delay=self.retry_delay)

    def _conditions(self) -> Iterator[Condition]:
        """Iterate over the conditions to check after each iteration.

        A limit inside an "and" also applies alone. A loop with an evaluator and without a condition of
        success ends when its evaluation passes.
        """
        conditions: list[Condition] = []
        for tree in (self.until, self.guards):
            if tree is not None:
                conditions += [*tree.flat(), *tree.limits()]
        # With an objective, the loop looks for the best value until a limit ends it.
        if self.evaluate is not None and not self.has_goal and not self._optimises:
            conditions.append(Passed())
        if not any(isinstance(c, MaxIterations | PhaseLimit) for c in conditions):
            conditions.append(MaxIterations(max(DEFAULT_LIMIT, self.min_iterations)))
        for condition in conditions:
            if type(condition).__hash__ is None:
                raise ConfigurationError(
                    f"loop: {condition!r} can change, so a resumed run could decide differently; "
                    f"declare {type(condition).__name__} with @dataclass(frozen=True)"
                )
        # A limit inside an "and" is listed twice if it also stands alone.
        yield from dict.fromkeys(conditions)

    @functools.cached_property
    def has_goal(self) -> bool:
        """Whether `until` or `guards` has a condition of success."""
        return any(has_goal(tree) for tree in (self.until, self.guards))

    @property
    def _optimises(self) -> bool:
        return self.measured is not None and bool(self.measured.objective)

    def _warn_of_no_goal(self) -> None:
        if self._optimises:
            return
        if self.evaluate is not None and not self.has_goal and as_step(self.evaluate).scores_only:
            message = f"loop {self.name}: {NO_GOAL_SENTENCE}"
            warnings.warn(LoopwrightWarning(message, code=NO_GOAL), stacklevel=4)

    def _unreachable(self) -> Iterator[str]:
        """Iterate over sentences on conditions that need more iterations than the loop can run."""
        for condition in self.members:
            needed = getattr(condition, "min_iterations", 1)
            if needed > self.limit:
                yield (
                    f"loop {self.name}: {tag_of(type(condition))} needs {needed} iterations, and the loop "
                    f"can run {self.limit}; raise max_iterations, or lower min_iterations"
                )

    members: tuple[Condition, ...] = field(init=False, repr=False, compare=False, default=())
    # The evaluators that answer the sentences of `until`, by sentence.
    sentences: Mapping[str, Step] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    measured: LoopMetrics | None = field(init=False, repr=False, compare=False, default=None)
    _parts: tuple[Step, ...] = field(init=False, repr=False, compare=False, default=())

    @functools.cached_property
    def depth(self) -> int:
        """How many loops nest in it, itself included."""
        return 1 + super().depth

    def __repr__(self) -> str:
        return f"<Loop {self.name!r}: {'; '.join(' '.join(row) for row in self._declared())}>"

    def _repr_html_(self) -> str:
        return table_html(f"Loop {self.name}", self._declared())

    def _declared(self) -> Iterator[tuple[str, str]]:
        """Iterate over its stages, conditions and bounds, for display."""
        for stage in ("execute", "evaluate", "adapt"):
            step = getattr(self, stage)
            if step is not None:
                yield stage, as_step(step).name
        for name in ("until", "guards"):
            if (condition := getattr(self, name)) is not None:
                yield name, repr(condition)
        yield "limit", f"{self.limit} iterations"

    def parts(self) -> Iterable[Step]:
        return self._parts

    # Read once: a run of a loop reads its types six times, and annotations do not change.
    @functools.cached_property
    def input_type(self) -> ValueType | None:
        return self._parts[0].input_type

    @functools.cached_property
    def output_type(self) -> ValueType | None:
        return self._parts[0].output_type

    @functools.cached_property
    def iteration_types(self) -> tuple[ValueType | None, ValueType | None]:
        """The declared types of the input and the output of an iteration."""
        return self.input_type, self.output_type

    @property
    def limit(self) -> int:
        """The most iterations that it can run."""
        return min(c.limit for c in self.members if isinstance(c, MaxIterations | PhaseLimit))

    @functools.cached_property
    def bounds(self) -> list[Json]:
        """Its conditions and guards as JSON, for display."""
        return [condition.to_json() for condition in self.members]

    @property
    def renewed(self) -> Sequence[tuple[int, str]]:
        """A loop with an evaluator and no goal of its own."""
        own = self.evaluate is None or self.has_goal or self._optimises
        return () if own else ((1, "that a loop ends when its evaluation passes"),)

    @functools.cached_property
    def rules(self) -> dict[str, Json]:
        """What decides when it ends, as JSON without defaults; `loop_of_rules` reads it."""
        found: dict[str, Json] = {"evaluate": True} if self.evaluate is not None else {}
        for one in dataclasses.fields(self):
            value = getattr(self, one.name) if one.name in _RULES else one.default
            if value == one.default:
                continue
            if isinstance(value, Condition):
                value = value.to_json()
            elif isinstance(value, Mapping):
                value = {
                    name: vars(item) if isinstance(item, Metric) else item
                    for name, item in value.items()
                }
            found[one.name] = vars(value) if dataclasses.is_dataclass(value) else value
        return found

    @fingerprinted
    def fingerprint(self) -> str:
        stages = (self.execute, self.evaluate, self.adapt)
        return digest_of(
            "loop",
            self.name,
            *("" if stage is None else as_step(stage).fingerprint for stage in stages),
            *(_written(condition) for condition in self.members),
            # Later options are added only if they are set, so that earlier journals stay valid.
            f"{self.on_failure} {self.max_retries} {self.keep} {self.min_iterations}",
            *([f"rejudge {self.rejudge}"] if self.rejudge else []),
            *(f"until {step.fingerprint}" for step in self.sentences.values()),
            *(["baseline"] if self.baseline else []),
            *([repr(self.on_stall)] if self.on_stall is not None else []),
            *([f"metrics {self.measured}"] if self.measured is not None else []),
            *([repr(self.impossible)] if self.impossible != Impossible() else []),
            *([repr(self.undecided)] if self.undecided != Undecided() else []),
            *(
                [f"max_failures {self.max_failures}"]
                if self.max_failures != FAILURES_IN_A_ROW
                else []
            ),
            *([f"accept {' '.join(self.accept)}"] if self.accept else []),
            *([f"explore {self.explore:g}"] if self.explore else []),
            *([f"approve {' '.join(self.approve)}"] if self.approve else []),
            *([f"workspace {self.workspace.fingerprint}"] if self.workspace is not None else []),
        )

    @functools.cached_property
    def watched(self) -> tuple[Condition, ...]:
        """The guards that are also checked before each effect: those that the user defined."""
        if self.guards is None:
            return ()
        # Conditions of this package change with the record only, and limits have checks of their own.
        return tuple(guard for guard in self.guards.flat() if not guard.ours)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether its steps are functions of a value, without a context and without a reserved cost."""
        return all(
            isinstance(part, Leaf) and not part.wants_context and part.reserve is None
            for part in self.parts()
        )

    @functools.cached_property
    def reads_past(self) -> bool:
        """Whether it, or a loop in it, has a setting that past runs decide."""
        return uses_past(self.members) or any(part.reads_past for part in self.parts())

    @functools.cached_property
    def explores(self) -> bool:
        """Whether it, or a loop in it, explores."""
        return self.explore > 0 or any(part.explores for part in self.parts())

    @functools.cached_property
    def seconds(self) -> float:
        """The most active seconds, or infinity."""
        return time_limits(self.members)[0]

    @functools.cached_property
    def wall(self) -> float:
        """The time at which it must end, in seconds since the epoch, or infinity."""
        return time_limits(self.members)[1]

    @functools.cached_property
    def budget(self) -> Budget | None:
        """The tightest of its budgets, unit by unit."""
        return tightest(*(c for c in self.members if isinstance(c, Budget)))

    @functools.cached_property
    def unbound(self) -> str:
        """A sentence on why its budget can never be used up, or ""."""
        budget = self.budget
        return "" if budget is None else cannot_bind(self, budget, f"loop {self.name!r}")

    @functools.cached_property
    def goals(self) -> tuple[Condition, ...]:
        """Its conditions of success."""
        return tuple(c for c in self.members if has_goal(c))

    def run(self, value: Json, ctx: Context) -> Coroutine[object, object, Result]:
        """Run it to its end, from where the journal stands."""
        # The stages are steps since `__post_init__`.
        declaration = cast("LoopDeclaration", self)
        around = None if ctx.scope is None else ctx.scope.files
        if self.workspace is None and around is None:
            return LoopRun(declaration, value, ctx).run()
        return WorkspaceLoopRun(declaration, value, ctx, self.workspace, around).run()

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether the evaluation before the first iteration satisfies the loop."""
        first = History([Iteration(0, evaluation=evaluation)])
        answers = {sentence: evaluation.answer(sentence) for sentence in self.sentences}
        return TreeReading(self.members, first, answers, of_input=True).value() == "yes"

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop should end after its latest record, or None: a pure function.

        `members` are its conditions with the limits that a person raised; by default its own.
        """
        stops: list[Stop] | None = None
        # The rules about failures, judges and tampering concern only iterations that cannot satisfy.
        sound = history.can_satisfy
        if not sound:
            # Failures before conditions: a failed iteration has no evaluation to decide on.
            if (stop := self._failed(history) or self._undecidable(history)) is not None:
                return stop
            if (tampered := tampering_stop(history)) is not None:
                stops = [tampered]
        for condition in members or self.members:
            # Conditions of this package do not fail, and need no copies of the history.
            stop = condition.check(history) if condition.ours else check_safely(condition, history)
            if stop is None:
                continue
            # `min_iterations` delays conditions, but not limits and not the failure of a condition.
            if not condition.early or history.length >= self.min_iterations or stop.failure:
                stops = [stop] if stops is None else [*stops, stop]
        if self.on_stall is not None and (stalled := self.on_stall.check(history)) is not None:
            stops = [*(stops or []), stalled]
        if not sound and (given_up := self.impossible.check(history)) is not None:
            stops = [*(stops or []), given_up]
        if stops is None:
            return None
        only = len(stops) == 1 and not stops[0].failure
        return stops[0] if only else self._preferred(stops)

    def _preferred(self, stops: list[Stop]) -> Stop | None:
        preferred = prefer(stops)
        if preferred is not None and preferred.failure:
            return named(preferred, self.name)
        return preferred

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return the limit or the failure that ends a loop that explores, or None."""
        if (stop := self._failed(history)) is not None:
            return stop
        limits = (c for c in members or self.members if not c.early)
        return prefer([stop for c in limits if (stop := c.check(history)) is not None])

    def _failed(self, history: History) -> Stop | None:
        last = history[-1]
        error = last.error
        if error is None or last.interrupted:
            return None
        if error.kind == BROKEN_EVALUATOR and error.stage == "evaluate":
            return Stop(Reason.EVALUATOR_UNUSABLE, f"iteration {last.number}: {error.message}")
        if self.on_failure != "continue":
            return Stop(Reason.ERROR, f"iteration {last.number}: {error.stage}: {error.message}")
        if self.max_failures is not None and history.failures >= self.max_failures:
            detail = (
                f"{history.failures} iterations in a row failed, the last with: {error.message}"
            )
            return Stop(Reason.REPEATED_FAILURE, detail)
        return None

    def _undecidable(self, history: History) -> Stop | None:
        undecided = history.undecided
        if undecided < self.undecided.after:
            return None
        detail = f"the evaluation was undecided {undecided} times in a row"
        why = shortened(" ".join(_unread(history[-1]).split()), FEEDBACK_SHOWN)
        return Stop(Reason.EVALUATOR_UNUSABLE, f"{detail}: {why}" if why else detail)

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return the stop to report: if every iteration failed, the loop failed, whatever ended it."""
        if stop.reason.status is not Status.EXHAUSTED or history.last is None:
            return stop
        if history.last.error is None or history.failures < len(history):
            return stop
        failed = [item for item in history if not item.interrupted]
        if not failed:
            return stop
        last = failed[-1].feedback
        detail = f"all {len(failed)} iterations failed, the last with: {last}"
        if len(failed) == 1:
            detail = f"its only iteration failed: {last}"
        return Stop(Reason.ALL_FAILED, detail, (stop.reason, *stop.also))

    def _passed_unread(self, stop: Stop, history: History) -> int | None:
        """Return the first iteration that passed and did not end the loop, if no condition reads that; or None."""
        if self._optimises or not self.goals or any(map(_reads_verdict, self.members)):
            return None
        waits = max(self.min_iterations, *(getattr(c, "min_iterations", 1) for c in self.goals))
        ended = history.length if stop.satisfied else 0
        passed = (item.number for item in history if item.passed is True and item.can_satisfy)
        return next((number for number in passed if number >= waits and number != ended), None)

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over warnings, each a code and a sentence, on conditions of success that could not hold.

        No evaluation had the field that such a condition reads, or none reads the verdict that one had.
        """
        if (number := self._passed_unread(stop, history)) is not None:
            yield (
                PASSED_UNREAD,
                (
                    f"iteration {number} passed its evaluation, and no condition reads that, so the loop went on; add "
                    "passed to until, if it should end"
                ),
            )
        if stop.reason is not Reason.MAX_ITERATIONS and (
            self.has_goal or stop.reason.status is not Status.EXHAUSTED
        ):
            return
        if history.best is None:
            return
        items = list(history)
        if any(goal.applies_to(item) and item.eligible for item in items for goal in self.goals):
            return
        evaluations = [item.evaluation for item in items if item.evaluation is not None]
        scored = any(evaluation.score is not None for evaluation in evaluations)
        judged = any(evaluation.passed is not None for evaluation in evaluations)
        empty = not scored and not judged and not any(one.metrics for one in evaluations)
        for goal in self.goals:
            if self.evaluate is not None and empty:
                yield NOT_APPLICABLE, EMPTY_EVALUATIONS
                return
            # A score without a verdict: the loop lacks the score that is enough.
            if not self.has_goal or (isinstance(goal, Passed) and scored):
                yield NO_GOAL, NO_GOAL_SENTENCE
                continue
            lack = (
                "it has no evaluate" if self.evaluate is None else f"no iteration had {goal.reads}"
            )
            yield NOT_APPLICABLE, f"{lack}, so {tag_of(type(goal))} could not hold"


def _reads_verdict(condition: Condition) -> bool:
    """Return whether a condition may read `passed`."""
    if not condition.ours or isinstance(condition, Passed | AllCriteriaMet):
        return True
    return any(map(_reads_verdict, condition.parts()))


def _unread(item: Iteration) -> str:
    """Return why an iteration is undecided: the answer to a sentence, else its feedback."""
    verdicts = None if item.evaluation is None else item.evaluation.verdicts
    unread = [v["feedback"] for v in (verdicts or {}).values() if v["passed"] is None]
    return unread[0] if unread else item.feedback


def loop_of_rules(name: str, rules: Mapping[str, Json]) -> Loop:
    """Return a loop that ends as the one whose `rules` were recorded; its steps do nothing.

    Raises:
        ConfigurationError: for a condition that is not JSON, as a class of a Python program.
    """
    read: Mapping[str, Callable[[Any], object]] = {
        "until": from_json,
        "guards": from_json,
        "metrics": lambda metrics: {
            name: Metric(**item) if isinstance(item, Mapping) else item
            for name, item in metrics.items()
        },
        "on_stall": lambda fields: OnStall(**fields),
        "impossible": lambda fields: Impossible(**fields),
        # What happens then is in the record.
        "undecided": lambda fields: Undecided(fields["after"]),
    }
    options: dict[str, Any] = {
        key: read[key](value) if key in read else value
        for key, value in rules.items()
        if key in _RULES
    }
    with warnings.catch_warnings():
        # The remarks are for loops that run.
        warnings.simplefilter("ignore", LoopwrightWarning)
        return Loop(_nothing, _nothing if rules.get("evaluate") else None, name=name, **options)


def _nothing(value: Json) -> None:
    """Stand for a step of a loop that does not run."""


def _written(condition: Condition) -> str:
    """Return a condition as text for the fingerprint; a user-defined one with a digest of its code."""
    if condition.ours and all(member.ours for member in condition.parts()):
        return codec.encode(condition.to_json())
    if condition.ours:
        return f"{tag_of(type(condition))} {' '.join(map(_written, condition.parts()))}"
    code = source_digest(type(condition).check)
    return f"{tag_of(type(condition))} {codec.encode(condition.field_values())} {code}"


def any_of(*conditions: Condition | None) -> Condition | None:
    """Return the conditions joined by "or", without the missing ones; None if there is none."""
    present = tuple(c for c in conditions if c is not None)
    return None if not present else present[0] if len(present) == 1 else AnyOf(present)
