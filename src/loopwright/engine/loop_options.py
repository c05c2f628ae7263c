"""What a loop declares: its options, completed and checked, and its fingerprint; `Loop` explains the options.

Exploration: a share of the runs of a loop continues to its limits after the normal end. The normal end decides
status, reason and output. The iterations after it are recorded as `explored`, so that replay can say what a later
stop would have been worth.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypedDict,
    cast,
    runtime_checkable,
)

from ..conditions import (
    CEILING,
    UNITS,
    Budget,
    Condition,
    Degrading,
    Impossible,
    Judged,
    MaxIterations,
    NoImprovement,
    OnStall,
    Passed,
    PhaseLimit,
    ScoreAtLeast,
    Timeout,
    has_goal,
    questions_in,
    tag_of,
    tightest,
    time_limits,
    uses_past,
    with_passed,
)
from ..errors import (
    ConfigurationError,
    LoopwrightWarning,
    nearest,
)
from ..records import (
    Evaluation,
    History,
    Iteration,
    Reason,
    Result,
    Status,
    Stop,
    codec,
)
from ..records.codec import Json, integer, number
from ..records.display import table_html
from ..records.typed import Value, ValueType
from .budgets import CANNOT_BIND, cannot_bind
from .files import StateSource
from .step import (
    CompositeStep,
    EvaluatorLike,
    FunctionStep,
    In,
    Leaf,
    Out,
    Step,
    StepLike,
    acceptable,
    as_step,
    digest_of,
    fingerprinted,
    former_version,
    source_digest,
)

if TYPE_CHECKING:
    from ..search.optimise import Optimise
    from .candidates import Candidates
    from .confirmation import Confirm
    from .metrics import LoopMetrics, Metric, MetricScore
    from .plan import Policies

__all__ = [
    "LoopDeclaration",
    "LoopLimits",
    "LoopOptions",
    "Undecided",
    "acting",
    "check_surroundings",
    "explores",
    "may_continue",
    "measures_only",
    "one_of",
    "refuse_to_act",
]

MOMENTS = ("iteration", "limit")  # when a loop can ask a person; also the kinds of its questions
UNDECIDED_THEN = ("fail", "pause", "accept_check", "reject")
NO_CHECK = (
    "loop: undecided: accept_check needs a deterministic evaluator and a judge. Use a list with a check "
    "and a judge, or then: reject."
)
UNJUDGED = "unjudged"  # the code of a warning, and its sentence
UNJUDGED_SENTENCE = "the judge could not decide, so the deterministic evaluators decided alone"


@dataclass(frozen=True, eq=False, repr=False)
class Undecided(Value):
    """What a loop does after evaluations in a row that could not decide.

    Args:
        after: The evaluations in a row. Default: 2.
        then: `fail` ends the loop as `evaluator_unusable`; `pause` asks a person for the verdict;
            `accept_check` lets the deterministic evaluators decide alone; `reject` counts the output as not
            met, without a score. Default: `fail`.

    Raises:
        ConfigurationError: For an unknown word, or a number below 1.

    Example:
        >>> from loopwright import Evaluation, Loop, MaxIterations, Undecided, run_sync
        >>> unsure = Evaluation(undecided=True, feedback="no answer")
        >>> loop = Loop(str, lambda text: unsure, until=MaxIterations(3), undecided=Undecided(1, "reject"))
        >>> run_sync(loop, "task").reason.value
        'max_iterations'
    """

    after: int = 2
    then: str = "fail"

    def __post_init__(self) -> None:
        integer("undecided: after", self.after, minimum=1)
        if self.then not in UNDECIDED_THEN:
            raise ConfigurationError(
                f"undecided: then: {self.then!r} is none of {', '.join(UNDECIDED_THEN)}{nearest(str(self.then), UNDECIDED_THEN)}"
            )

    def due(self, history: History) -> bool:
        """Return whether the policy applies to an undecided evaluation that follows this history."""
        row = 1
        for item in reversed(history):
            # An evaluation without the judge continues the row: the judge has not decided since.
            if item.evaluation is None or not (item.undecided or item.evaluation.unjudged):
                break
            row += 1
        return row >= self.after

    def rejected(self, evaluation: Evaluation) -> Evaluation:
        """Return the evaluation in place of an undecided one that counts as not met."""
        return Evaluation(
            passed=False,
            feedback=evaluation.feedback,
            votes=evaluation.votes,
            details=evaluation.details,
            unjudged=True,
        )


@runtime_checkable
class JudgedWithChecks(Protocol):
    """An evaluator of several whose deterministic members can decide alone."""

    @property
    def checks(self) -> bool:
        """Whether it has a deterministic member."""

    def deciding_alone(self, policy: Undecided) -> Step | None:
        """Return the evaluator with this policy; None without a deterministic member before a judge."""


def has_check(evaluate: Step) -> bool:
    """Return whether an evaluator has a deterministic member whose verdict is known, or is one."""
    mixed = isinstance(evaluate, JudgedWithChecks) and evaluate.checks
    return mixed or not evaluate.asks_model


def without_judge(evaluate: Step, policy: Undecided) -> Step:
    """Return an evaluator whose deterministic members decide alone if its judge cannot.

    Raises:
        ConfigurationError: If there is no deterministic member.
    """
    part = evaluate.deciding_alone(policy) if isinstance(evaluate, JudgedWithChecks) else None
    if part is None:
        raise ConfigurationError(NO_CHECK, option="undecided")
    return part


class LoopDeclaration(Protocol):
    """The members of a loop that its run uses; `Loop` explains them."""

    # A protocol, so that the modules that `loop` imports can use it, and lists can be loops too.

    @property
    def name(self) -> str: ...

    @property
    def execute(self) -> Step: ...

    @property
    def evaluate(self) -> Step | None: ...

    @property
    def sentences(self) -> Mapping[str, Step]: ...

    @property
    def adapt(self) -> Step | None: ...

    @property
    def keep(self) -> str: ...

    @property
    def rejudge(self) -> int: ...

    @property
    def baseline(self) -> bool: ...

    @property
    def on_stall(self) -> OnStall | None: ...

    @property
    def candidates(self) -> Candidates | None: ...

    @property
    def policies(self) -> Policies | None: ...

    @property
    def optimise(self) -> Optimise | None: ...

    @property
    def measured(self) -> LoopMetrics | None: ...

    @property
    def undecided(self) -> Undecided: ...

    @property
    def explore(self) -> float: ...

    @property
    def hints(self) -> Mapping[str, str] | None: ...

    @property
    def approve(self) -> str | Sequence[str]: ...

    @property
    def on_iteration(self) -> Callable[[Iteration], object] | None: ...

    @property
    def on_terminate(self) -> Callable[[Result], object] | None: ...

    @property
    def input_type(self) -> ValueType | None: ...

    @property
    def output_type(self) -> ValueType | None: ...

    @property
    def iteration_types(self) -> tuple[ValueType | None, ValueType | None]: ...

    @property
    def limit(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def wall(self) -> float: ...

    @property
    def budget(self) -> Budget | None: ...

    @property
    def unbound(self) -> str: ...

    @property
    def plain(self) -> bool: ...

    @property
    def members(self) -> tuple[Condition, ...]: ...

    @property
    def watched(self) -> tuple[Condition, ...]: ...

    def decide(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return why the loop ends after the latest record, or None."""

    def at_limit(self, history: History, members: tuple[Condition, ...] = ()) -> Stop | None:
        """Return the limit or the failure that ends a loop that explores, or None."""

    def satisfied_by(self, evaluation: Evaluation) -> bool:
        """Return whether the evaluation before the first iteration satisfies the loop."""

    def ending(self, stop: Stop, history: History) -> Stop:
        """Return how the loop ends."""

    def remarks(self, stop: Stop, history: History) -> Iterator[tuple[str, str]]:
        """Iterate over the remarks on an ended loop, as `Loop.remarks` does."""


# After these there is nothing left to explore, or nothing that should go on.
_FINAL = frozenset({
    Reason.MAX_ITERATIONS, Reason.PHASE_LIMIT, Reason.CEILING, Reason.TIMEOUT, Reason.DEADLINE,
    Reason.BUDGET, Reason.CANCELLED, Reason.TAMPERED, Reason.ACCEPTED, Reason.STOPPED,
})  # fmt: skip
_ENDINGS = (Status.SATISFIED, Status.EXHAUSTED, Status.IMPOSSIBLE)


def explores(run_id: str, share: float) -> bool:
    """Return whether a run explores: its ID decides, so that a resumed run decides alike.

    Args:
        run_id: the ID of the run.
        share: the share of runs that explore, from 0 to 1.

    >>> sum(explores(f"run-{number}", 0.1) for number in range(1000))
    97
    """
    # Of the digest and not of the text: IDs with a common beginning would decide alike.
    number = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:7], "big")
    return number < share * 256**7


def may_continue(stop: Stop) -> bool:
    """Return whether a loop that ends for this reason can explore."""
    return stop.reason.status in _ENDINGS and stop.reason not in _FINAL


def check_exploration(loop: LoopDeclaration) -> None:
    """Refuse to explore with a loop that asks people.

    Raises:
        ConfigurationError: names the option.
    """
    stall = loop.on_stall
    picks = loop.candidates.pick if loop.candidates is not None else ""
    if (
        loop.approve
        or loop.undecided.then == "pause"
        or (stall and stall.then == "ask")
        or picks == "ask"
    ):
        raise ConfigurationError(
            f"loop {loop.name}: explore: a loop that asks a person cannot explore, because the answer would have no "
            "effect. Remove approve, or explore.",
            option="explore",
        )


def refuse_to_act(loop: LoopDeclaration, parts: Iterable[Step]) -> None:
    """Refuse to explore with a loop that acts on the world, if no workspace surrounds it.

    Raises:
        ConfigurationError: names the step.
    """
    found = next((step for part in parts for step in acting(part)), None)
    if found is not None:
        raise ConfigurationError(
            f"loop {loop.name}: explore: {found.name} acts outside the run, and an explored run would repeat that. "
            "Give the loop a workspace, or declare the step with idempotent=True.",
            option="explore",
        )


def check_surroundings(step: Step, *, in_workspace: bool = False) -> None:
    """Refuse the loops in a step that explore and act on the world outside a workspace.

    Only the start of a run knows the workspaces around a loop: it is built before the workflow that has one.

    Raises:
        ConfigurationError: names the first such loop and its step.
    """
    if not step.explores:
        return
    if getattr(step, "workspace", None) is not None:
        in_workspace = True
    elif getattr(step, "over_list", False) and getattr(step, "at_once", 1) > 1:
        in_workspace = False  # items that run at the same time have no files
    if getattr(step, "explore", 0) and not in_workspace:
        refuse_to_act(cast("LoopDeclaration", step), step.parts())
    for part in step.parts():
        check_surroundings(part, in_workspace=in_workspace)


def acting(step: Step, *, asks: bool = False) -> Iterator[Step]:
    """Iterate over the steps that may not run twice: commands, agents, tools, and functions declared so.

    With `asks`, tools whose calls a person approves are among them.
    """
    if getattr(step, "idempotent", True) is False:
        yield step
    # Of a prompt, or of a judge, which keeps them with their limits.
    tools = getattr(step, "tools", ())
    for tool in getattr(tools, "tools", tools):
        approved = asks and getattr(tool, "approve", False)
        if approved or getattr(tool, "idempotent", False) is not True:
            yield tool
    for part in step.parts():
        yield from acting(part, asks=asks)


_CONDITIONS: Mapping[str, Callable[[Any], Condition]] = {
    "min_score": ScoreAtLeast,
    "max_iterations": MaxIterations,
    "patience": NoImprovement,
    "timeout": Timeout,
}


class LoopLimits(TypedDict, total=False):
    """The keyword limits of a loop, which `Loop` explains."""

    min_score: float | None
    max_iterations: int | None
    patience: int | None
    max_calls: int | None
    max_total_tokens: int | None
    max_usd: float | None
    timeout: float | None


def with_limits(
    until: Condition | None, guards: Condition | None, limits: LoopLimits
) -> Condition | None:
    """Return `until` joined by "or" with a condition for each keyword limit that is not None.

    Raises:
        ConfigurationError: for an invalid limit, or one that `until` or `guards` names too.
    """
    conditions = _conditions(limits)
    if not conditions:
        return until
    others = [
        other
        for tree in (until, guards)
        if isinstance(tree, Condition)
        for other in (*tree.flat(), *tree.limits())
    ]
    for name, condition in conditions.items():
        for other in others:
            # Two limits of one kind would hide which one the author meant.
            # A budget has several units.
            if type(other) is type(condition) and (
                name not in UNITS or getattr(other, UNITS[name]) is not None
            ):
                raise ConfigurationError(
                    f"loop: {name}: {other!r} is a condition of the loop too; name the limit once"
                )
    # Several units of one budget share a condition, which is joined once.
    for condition in dict.fromkeys(conditions.values()):
        until = condition if until is None else until | condition
    return until


def _conditions(limits: LoopLimits) -> dict[str, Condition]:
    """Return the condition of each limit by its name; the units of a budget share one."""
    values = cast("Mapping[str, Any]", limits)
    # In the order of the declaration, because the order of conditions is part of a fingerprint.
    names = [name for name in LoopLimits.__annotations__ if values.get(name) is not None]
    units = {UNITS[name]: values[name] for name in names if name in UNITS}
    return {
        name: Budget(**units) if name in UNITS else _CONDITIONS[name](values[name])
        for name in names
    }


def check_conditions(
    loop: str, members: Iterable[Condition], metrics: LoopMetrics | None, evaluate: Step | None
) -> None:
    """Check the conditions of a loop against what its evaluator measures.

    Raises:
        ConfigurationError: for a condition on a score that no evaluator gives, a difference of scores above 1, or a
            metric that ends early and has no direction.
    """
    scored = metrics is not None and metrics.score is not None
    unscored = evaluate is not None and not scored and measures_only(evaluate)
    objective = metrics.objective if metrics is not None else ""
    declared = {} if metrics is None else metrics.metrics
    for name in () if evaluate is None else _ending_early(evaluate):
        if name not in declared or not declared[name].direction:
            raise ConfigurationError(
                f"loop {loop}: early: the metric {name!r} needs a direction; use metrics={{{name!r}: 'minimise'}}"
            )
    for condition in _all_of(members):
        if isinstance(condition, ScoreAtLeast) and unscored:
            raise ConfigurationError(
                f"loop {loop}: {tag_of(type(condition))} can never hold: its evaluator measures a metric and gives no score; "
                "use metric_at_least or metric_at_most, or declare score: {metric, worst, best}"
            )
        # In the unit of the objective, any difference is possible.
        for name in _DIFFERENCES.get(type(condition), ()) if not objective else ():
            if isinstance(getattr(condition, name), str):
                continue  # the sigma of past runs
            number(
                f"{tag_of(type(condition))}: {name}", getattr(condition, name), minimum=0, maximum=1
            )


def _ending_early(step: Step) -> Iterator[str]:
    """Iterate over the names of the metrics in an evaluator whose values on the way can end them."""
    if getattr(step, "early", False):
        yield step.name
    for part in step.parts():
        yield from _ending_early(part)


_DIFFERENCES: Mapping[type[Condition], tuple[str, ...]] = {
    NoImprovement: ("min_delta",),
    Degrading: ("sigma", "tolerance"),
}


def _all_of(conditions: Iterable[Condition]) -> Iterator[Condition]:
    for condition in conditions:
        yield condition
        yield from _all_of(condition.parts())


def measures_only(step: Step) -> bool:
    """Return whether an evaluator gives metrics and never a score."""
    while isinstance(inner := getattr(step, "inner", None), Step):
        step = inner
    return getattr(step, "measures_only", False)


_WORDS = {
    "on_failure": ("halt", "continue", "retry"),
    "keep": ("best", "last"),
    "strategy_order": ("declared", "learned"),
}
_LEAST = {"max_retries": 0, "max_failures": 1, "min_iterations": 1, "rejudge": 0}
# The options that are objects, with an example of each.
_POLICIES = (
    ("on_stall", OnStall, "OnStall('best', patience=2)"),
    ("impossible", Impossible, "Impossible(floor=3, looks=2)"),
    ("undecided", Undecided, "Undecided(2, 'reject')"),
)


def check_options(options: Mapping[str, object]) -> None:
    """Check the options of a loop, each alone.

    Raises:
        ConfigurationError: names the first invalid option.
    """
    for name, words in _WORDS.items():
        one_of(f"loop: {name}", options[name], words)
    for name, least in _LEAST.items():
        if name == "max_failures" and options[name] is None:
            continue
        most = CEILING if name == "min_iterations" else None
        codec.integer(f"loop: {name}", options[name], minimum=least, maximum=most)
    codec.number("loop: explore", options["explore"], minimum=0, maximum=1)
    codec.number("loop: retry_delay", options["retry_delay"], minimum=0)
    for name, kind, example in _POLICIES:
        policy = options[name]
        if not isinstance(policy, kind) and not (policy is None and name == "on_stall"):
            raise ConfigurationError(
                f"loop: {name}: {policy!r:.60} is not an {kind.__name__}; use {example}"
            )
    for name in ("until", "guards"):
        condition = options[name]
        if condition is not None and not isinstance(condition, Condition):
            raise ConfigurationError(
                f"loop: {name}: {condition!r} is not a condition; use one, or several with | or & "
                "between them"
            )
    for name in ("on_iteration", "on_terminate"):
        hook = options[name]
        if hook is not None and not callable(hook):
            raise ConfigurationError(f"loop: {name}: {hook!r} is not a function")
    # Not checks of classes: both are in packages above the engine.
    if (optimise := options["optimise"]) is not None and not hasattr(optimise, "strategies_of"):
        raise ConfigurationError(
            f"loop: optimise: {optimise!r:.60} is not an Optimise; use one, such as Optimise({{'x': {{'float': [0, 1]}}}})"
        )
    workspace = options["workspace"]
    if workspace is not None and not hasattr(workspace, "state"):
        raise ConfigurationError(
            f'loop: workspace: {workspace!r:.60} is not a Workspace; use one, such as Workspace(".")'
        )
    if not isinstance(options["name"], str):
        raise ConfigurationError(f"loop: name: {options['name']!r} is not text")
    if (hints := options["hints"]) is not None:
        from ..journal.events import Event, checked_event  # for the few loops that have them

        if not isinstance(hints, Mapping) or [*hints] != ["event"]:
            raise ConfigurationError(
                f"loop: hints: {hints!r:.60} is not valid; use {{'event': 'review'}}"
            )
        checked_event(Event(hints["event"], ""))


def one_of(name: str, value: object, words: tuple[str, ...]) -> None:
    """Raise ConfigurationError if an option is none of the words."""
    if value not in words:
        raise ConfigurationError(
            f"{name}: {value!r} is none of {', '.join(filter(None, words))}{nearest(str(value), words)}"
        )


DEFAULT_LIMIT = 10  # iterations of a loop without a limit, so that no loop is endless
MOST_CANDIDATES = 1024  # of an iteration
MAX_DEPTH = 8  # loops within loops: iterations multiply with each level
FAILURES_IN_A_ROW = 3
# The options that decide when a loop ends, and with which output.
RULES = (
    "until", "guards", "on_failure", "keep", "min_iterations", "max_failures", "metrics", "objective",
    "confirm", "on_stall", "impossible", "undecided", "explore",
)  # fmt: skip
LIMIT_UNREACHABLE = "limit_unreachable"
NO_GOAL = "no_goal"  # the code of the warning, and its sentence
NO_GOAL_SENTENCE = (
    "its evaluator gives scores only, and no condition says which score is enough, so it cannot be "
    "satisfied; add a score_at_least"
)


if TYPE_CHECKING:

    class LoopKeywords(LoopLimits, Generic[In, Out], total=False):
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
        on_stall: OnStall | str | None
        candidates: Candidates | int | None
        strategies: Mapping[str, Json] | None
        strategy_order: str
        refine_from: str | Mapping[str, Json] | None
        optimise: Optimise | None
        metrics: Mapping[str, str | Metric] | None
        objective: str | Sequence[str]
        score: MetricScore | Mapping[str, Json] | None
        confirm: Confirm | None
        impossible: Impossible
        undecided: Undecided
        explore: float
        hints: Mapping[str, str] | None
        approve: str | Sequence[str]
        workspace: StateSource | None
        on_iteration: Callable[[Iteration[In, Out]], object] | None
        on_terminate: Callable[[Result[Out]], object] | None


@dataclass(frozen=True, eq=False, repr=False)
class LoopOptions(Value, CompositeStep[In, Out]):
    """What a loop declares, completed and checked; `Loop` explains the options."""

    keeps_types: ClassVar[bool] = True
    replayed: ClassVar[bool] = False
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
    candidates: Candidates | int | None = field(default=None, kw_only=True)
    strategies: Mapping[str, Json] | None = field(default=None, kw_only=True)
    strategy_order: str = field(default="declared", kw_only=True)
    refine_from: str | Mapping[str, Json] | None = field(default=None, kw_only=True)
    optimise: Optimise | None = field(default=None, kw_only=True)
    metrics: Mapping[str, str | Metric] | None = field(default=None, kw_only=True)
    objective: str | Sequence[str] = field(default="", kw_only=True)
    score: MetricScore | Mapping[str, Json] | None = field(default=None, kw_only=True)
    confirm: Confirm | None = field(default=None, kw_only=True)
    impossible: Impossible = field(default=Impossible(), kw_only=True)
    undecided: Undecided = field(default=Undecided(), kw_only=True)
    explore: float = field(default=0.0, kw_only=True)
    hints: Mapping[str, str] | None = field(default=None, kw_only=True)
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
        if isinstance(self.on_stall, str):
            put("on_stall", OnStall(self.on_stall))
        check_options(vars(self))
        if self.metrics is not None or self.objective != "" or self.score is not None:
            from .metrics import metrics_of

            put("measured", metrics_of(self.metrics, self.objective, self.score, self.confirm))
        put("until", with_limits(self.until, self.guards, limits))
        put("sentences", self._sentences())
        stages = ("execute", "evaluate", "adapt")
        present = [name for name in stages if name == "execute" or getattr(self, name) is not None]
        for name in present:
            put(name, self._stage(name))
        put("_parts", (*(getattr(self, name) for name in present), *self.sentences.values()))
        if self.candidates is not None:
            from .candidates import candidates_of

            several = candidates_of(self.candidates).with_step(self._retried)
            put("candidates", several)
            put("_parts", (*self._parts, *([] if several.step is None else [several.step])))
            if self.workspace is not None:
                several.check_workspace(self.workspace, self.name)
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
        if self.optimise is not None:
            put("strategies", self.optimise.strategies_of(self))
        if self.confirm is not None:
            from .confirming import check_confirm

            check_confirm(self)
        declared = (self.on_stall, self.strategies, self.refine_from, self.confirm)
        if any(one is not None for one in declared) or self.strategy_order == "learned":
            from .plan import policies_of

            put("policies", policies_of(self))
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
                from .metrics import Repeated

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
        from .composites import retry

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
    policies: Policies | None = field(init=False, repr=False, compare=False, default=None)
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
            value = getattr(self, one.name) if one.name in RULES else one.default
            if value == one.default:
                continue
            if isinstance(value, Condition):
                value = value.to_json()
            elif isinstance(value, Mapping):
                value = {
                    name: vars(item) if dataclasses.is_dataclass(item) else item
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
            *([self._stall_text] if self.on_stall is not None else []),
            *self._policy_texts,
            *([self.optimise.fingerprint] if self.optimise is not None else []),
            *([several.fingerprint(_written)] if (several := self.several) is not None else []),
            *([f"metrics {self.measured}"] if self.measured is not None else []),
            *([repr(self.confirm)] if self.confirm is not None else []),
            *(
                [f"objectives {' '.join(self.measured.objectives)}"]
                if self.measured is not None and len(self.measured.objectives) > 1
                else []
            ),
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
            *(
                [f"workspace {self.workspace.fingerprint_with(self.former_rule or 'last')}"]
                if self.workspace is not None
                else []
            ),
        )

    @property
    def several(self) -> Candidates | None:
        """Its candidates, completed; None with one, because then everything is as without the option."""
        several = cast("Candidates | None", self.candidates)
        return None if several is None or several.most == 1 else several

    @property
    def _stall_text(self) -> str:
        stall, former = self.on_stall, former_version() < 2
        assert stall is not None
        # Before, `last` was named `fresh`, and the default was one new chain.
        then = "fresh" if former and stall.then == "last" else stall.then
        restarts = 1 if former and stall.restarts == OnStall.restarts else stall.restarts
        least = f" {stall.min_delta:g}" if stall.min_delta else ""
        return f"OnStall(then={then!r}, patience={stall.patience}, restarts={restarts}){least}"

    @property
    def former_rule(self) -> str:
        """The rule for the parent as a workspace had it before, or ""."""
        if self.refine_from != "best":
            return ""
        return "accepted" if self._optimises else "best"

    @property
    def _policy_texts(self) -> Iterator[str]:
        # Before, a workspace had it, and its fingerprint still has.
        of_workspace = self.refine_from is None or (self.workspace is not None and self.former_rule)
        if not of_workspace and former_version() >= 2:
            yield f"refine_from {self.policies and self.policies.refine_from}"
        if self.strategies is not None:
            yield f"strategies {self.strategy_order} {codec.encode(dict(self.strategies))}"

    @functools.cached_property
    def watched(self) -> tuple[Condition, ...]:
        """The guards that are also checked before each effect: those that the user defined."""
        if self.guards is None:
            return ()
        # Conditions of this package change with the record only, and limits have checks of their own.
        return tuple(guard for guard in self.guards.flat() if not guard.ours)

    @functools.cached_property
    def plain(self) -> bool:
        """Whether its steps are functions of a value: no context, reserved cost, request or end of their own."""
        return all(
            isinstance(part, Leaf)
            and not (part.wants_context or part.finishes)
            and part.reserve is None
            and part.asks is None
            for part in self.parts()
        )

    @functools.cached_property
    def reads_past(self) -> bool:
        """Whether it, or a loop in it, has a setting that past runs decide."""
        learns = self.strategy_order == "learned"
        return learns or uses_past(self.members) or any(part.reads_past for part in self.parts())

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


def _written(condition: Condition) -> str:
    """Return a condition as text for the fingerprint; a user-defined one with a digest of its code."""
    if condition.ours and all(member.ours for member in condition.parts()):
        return codec.encode(condition.to_json())
    if condition.ours:
        return f"{tag_of(type(condition))} {' '.join(map(_written, condition.parts()))}"
    code = source_digest(type(condition).check)
    return f"{tag_of(type(condition))} {codec.encode(condition.field_values())} {code}"
